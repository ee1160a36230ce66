"""The settings that the log shows at the start."""

from __future__ import annotations

import json

from proxy.process.starting import changed, shown
from proxy.settings.table import ROWS, Settings

GIVEN = Settings(backend="mongodb://u:secret@h/", max_connections=3, compressors=("zstd",))


def test_all_settings_are_shown_without_passwords() -> None:
    assert list(shown(GIVEN)) == sorted(ROWS, key=list(shown(GIVEN)).index)
    assert "secret" not in json.dumps(shown(GIVEN))


def test_only_what_differs_from_the_defaults() -> None:
    assert changed(Settings()) == {}
    assert changed(GIVEN) == {"backend": "mongodb://u:***@h/", "max_connections": 3, "compressors": ["zstd"]}
