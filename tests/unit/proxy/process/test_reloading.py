"""A reload is complete or does nothing, and tells its followers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.process.reloading import Reloading
from proxy.settings.config import ConfigurationError, load_settings
from proxy.settings.table import Settings


def changed(**values: int) -> Settings:
    return replace(load_settings({}, {}).settings, **values)


def reloading(file: Path, text: str = "") -> tuple[Reloading, Callable[[str], int]]:
    file.write_text(text)
    return Reloading(load_settings({}, {}, file), lambda: load_settings({}, {}, file)), file.write_text


def test_followers_get_the_settings_in_effect(tmp_path: Path) -> None:
    made, write = reloading(tmp_path / "t.toml")
    seen: list[Settings] = []
    made.follow(seen.append)
    assert seen == []
    write("max_connections = 5\nlisten = '127.0.0.1:1'")
    done = made.reload()
    assert (done.changed, done.left) == (("max_connections",), ("listen",))
    assert seen == [changed(max_connections=5)] == [made.settings]


def test_one_that_follows_later_gets_what_has_changed_before(tmp_path: Path) -> None:
    made, write = reloading(tmp_path / "t.toml")
    write("max_connections = 5")
    made.reload()
    seen: list[Settings] = []
    made.follow(seen.append)
    assert seen == [changed(max_connections=5)]


def test_mistakes_change_nothing_and_all_are_told(tmp_path: Path) -> None:
    made, write = reloading(tmp_path / "t.toml", "max_connections = 9")
    seen: list[Settings] = []
    made.follow(seen.append)
    write("max_connections = 0\nmax_conections = 1\nidle_timeout_seconds = 3")
    with pytest.raises(ConfigurationError) as raised:
        made.reload()
    assert len(raised.value.problems) == 2
    assert made.settings == changed(max_connections=9)
    assert seen == []


def test_certificate_files_that_are_not_valid_are_mistakes(tmp_path: Path) -> None:
    made, write = reloading(tmp_path / "t.toml")
    (tmp_path / "bad.pem").write_text("nonsense")
    write(f"max_connections = 5\ntls_certificate_file = '{tmp_path}/bad.pem'")
    with pytest.raises(ConfigurationError, match="no PEM certificate"):
        made.reload()
    assert made.settings == changed()


def test_the_signal_only_logs(tmp_path: Path) -> None:
    made, write = reloading(tmp_path / "t.toml")
    write("backend = 'mongodb://u:secret@h:x/'")
    with capture_logs() as logs:
        made.on_hangup()
    assert [line["log_level"] for line in logs] == ["error"]
    assert "keeping the previous ones" in logs[0]["event"]
    assert "secret" not in str(logs)
    write("max_pending_measurements = 5\nfail_fast = true")
    with capture_logs() as logs:
        made.on_hangup()
    assert logs[0]["changed"] == {"max_pending_measurements": 5}
    assert logs[1]["settings"] == ["fail_fast"]
