"""Settings as text."""

from __future__ import annotations

import tomllib
from pathlib import Path

from proxy.settings.config import load_settings
from proxy.settings.table import ROWS
from proxy.settings.text import render_example, render_settings

EXAMPLE = Path(__file__).parents[4] / "config.example.toml"


def test_example_file_is_what_the_table_says() -> None:
    """``.venv/bin/tsproxy check-config --example > config.example.toml`` writes it anew."""
    assert EXAMPLE.read_text() == render_example()


def test_example_file_is_the_defaults() -> None:
    assert load_settings({}, {}, EXAMPLE).settings == load_settings({}, {}).settings
    assert list(tomllib.loads(EXAMPLE.read_text())) == list(ROWS)


def test_printed_settings_can_be_read_again(tmp_path: Path) -> None:
    flags = {"listen": "[::1]:5", "compressors": "zlib", "status_listen": "", "commit_linger_ms": "0.5"}
    loaded = load_settings(flags, {})
    file = tmp_path / "again.toml"
    file.write_text(render_settings(loaded))
    assert load_settings({}, {}, file).settings == loaded.settings


def test_printed_settings_hide_passwords_and_tell_origins() -> None:
    text = render_settings(load_settings({"backend": "mongodb://u:secret@h/"}, {}))
    assert "secret" not in text
    assert 'backend = "mongodb://u:***@h/"' in text
    assert "# command line" in text
