"""The proxy's own account is checked at the start and while it runs."""

from __future__ import annotations

from pathlib import Path

from tests.support.access import PASSWORD, GuardedMongod
from tests.support.ports import free_port
from tests.support.proxy import ProxyProcess, tsproxy


def test_account_without_rights_is_not_ready_until_it_gets_them(guarded: GuardedMongod, tmp_path: Path) -> None:
    guarded.create_user("admin", "bare", [])
    uri = guarded.uri_of("bare", PASSWORD, "admin")
    proxy = ProxyProcess(tmp_path, uri).start()
    try:
        status, reason = proxy.status("/readyz")
        assert status == 503
        for part in ("bare", "admin", "listCollections", "bypassDocumentValidation on system_buckets"):
            assert part in reason
        assert "lacks privileges" in proxy.log
        assert "tsproxy doctor" in proxy.log
        assert "listening, but not ready" in proxy.log
        assert "] ready" not in proxy.log
        guarded.shared_client.admin.command("grantRolesToUser", "bare", roles=["tsproxy"])
        proxy.wait_until(lambda: proxy.status("/readyz")[0] == 200)
    finally:
        proxy.stop()
        guarded.shared_client.admin.command("dropUser", "bare")


def test_wrong_account_ends_the_start_with_3(guarded: GuardedMongod) -> None:
    guarded.create_user("admin", "poor", [])
    poor, wrong = guarded.uri_of("poor", PASSWORD, "admin"), guarded.uri_of("poor", "not-it", "admin")
    flags = ["--listen", f"127.0.0.1:{free_port()}", "--status-listen", ""]
    try:
        refused = tsproxy("serve", *flags, "--backend", wrong)
        lacking = tsproxy("serve", *flags, "--backend", poor, "--fail-fast", "true")
    finally:
        guarded.shared_client.admin.command("dropUser", "poor")
    assert (refused.returncode, lacking.returncode) == (3, 3)
    for part in (guarded.address, "'poor'", "authSource admin", "Authentication failed"):
        assert part in refused.stderr
    assert "not-it" not in refused.stderr
    assert "lacks privileges" in lacking.stderr
