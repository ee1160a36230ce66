"""The settings that the log shows at the start."""

from __future__ import annotations

import json

from proxy.process.starting import changed, shown
from proxy.settings.config import load_settings
from proxy.settings.table import ROWS, Settings

GIVEN = Settings(backend="mongodb://u:secret@h/", max_connections=3, compressors=("zstd",))


def test_all_settings_are_shown_without_passwords() -> None:
    assert list(shown(GIVEN)) == sorted(ROWS, key=list(shown(GIVEN)).index)
    assert "secret" not in json.dumps(shown(GIVEN))


def test_only_what_differs_from_the_defaults() -> None:
    assert changed(load_settings({}, {})) == {}
    given = {"backend": "mongodb://u:secret@h/", "max_connections": "3", "compressors": "zstd", "log_level": "info"}
    expected = {"backend": "mongodb://u:***@h/", "max_connections": 3, "compressors": ["zstd"]}
    assert changed(load_settings(given, {})) == expected


def test_the_embedded_mongod_is_of_no_interest_beside_a_backend() -> None:
    given = {"embedded_data_directory": "/srv/data"}
    assert changed(load_settings(given, {})) == given
    assert changed(load_settings({**given, "backend": "mongodb://h/"}, {})) == {"backend": "mongodb://h/"}
