"""What a reload changes, and what it leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from proxy.settings.config import load_settings
from proxy.settings.reload import reload, with_reloadable
from proxy.settings.table import ROWS, Settings


def test_reloadable_settings_change_and_others_are_left() -> None:
    current = load_settings({}, {})
    read = load_settings({"max_connections": "7", "listen": "127.0.0.1:5", "log_level": "debug"}, {})
    done = reload(current, read)
    assert (done.changed, done.left) == (("max_connections", "log_level"), ("listen",))
    assert done.loaded.settings == replace(current.settings, max_connections=7, log_level="debug")
    assert done.loaded.origins["max_connections"] == "command line"
    assert done.loaded.origins["listen"] == "default"


def test_a_setting_that_is_no_longer_given_gets_its_default() -> None:
    current = load_settings({"idle_timeout_seconds": "5"}, {})
    done = reload(current, load_settings({}, {}))
    assert done.changed == ("idle_timeout_seconds",)
    assert done.loaded.settings == load_settings({}, {}).settings
    assert done.loaded.origins["idle_timeout_seconds"] == "default"


def test_what_was_left_is_left_again_and_nothing_else_changes() -> None:
    current = load_settings({}, {})
    read = load_settings({"listen": "127.0.0.1:5"}, {})
    once = reload(current, read)
    assert reload(once.loaded, read) == once
    assert once.loaded.settings == current.settings


def test_files_of_tls_are_replaced_but_not_added_or_removed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    plain = load_settings({}, {})
    first = load_settings({"tls_certificate_file": str(tmp_path / "a")}, {})
    second = load_settings({"tls_certificate_file": str(tmp_path / "b"), "tls_key_file": str(tmp_path / "a")}, {})
    assert reload(plain, first).left == ("tls_certificate_file",)
    assert reload(first, plain).left == ("tls_certificate_file",)
    done = reload(first, second)
    # A certificate does not go with the key of another one.
    assert (done.changed, done.left) == ((), ("tls_certificate_file", "tls_key_file"))
    assert done.loaded.settings == first.settings
    assert reload(second, first).changed == ()
    other = load_settings({"tls_certificate_file": str(tmp_path / "b")}, {})
    assert reload(first, other).changed == ("tls_certificate_file",)


def test_only_reloadable_settings_are_taken_over() -> None:
    older, newer = Settings(backend="mongodb://a/"), Settings(max_connections=3, fail_fast=True)
    assert with_reloadable(older, newer) == Settings(backend="mongodb://a/", max_connections=3)
    assert not any(ROWS[name].is_reloadable for name in ("listen", "backend", "write_strategy"))
