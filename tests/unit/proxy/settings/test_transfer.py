"""Settings that another process gets are those that were loaded."""

from __future__ import annotations

import bson
import pytest

from proxy.settings.config import load_settings
from proxy.settings.transfer import document_of, loaded_from

FLAGS = {
    "listen": "[::1]:27018",
    "status_listen": "",
    "backend": "mongodb://user:secret@db.example:27017/?replicaSet=rs0",
    "workers": "auto",
    "max_receiving_bytes": "200000000",
    "slow_command_ms": "",
    "compressors": "zstd,snappy",
    "user_limits": '{"*": {"max_commands": 3}, "a.b@admin": {"max_connections": 0, "max_wait_ms": 5}}',
    "create_as_timeseries": "weather.* -> timeField=t",
    "embedded_data_directory": "/var/lib/tsproxy",
}


def test_all_kinds_of_values_arrive() -> None:
    loaded = load_settings(FLAGS, {"TSPROXY_LOG_LEVEL": "debug", "TSPROXY_IGNORE_UNKNOWN_SETTINGS": "1"})
    sent = bson.encode(document_of(loaded))
    assert loaded_from(bson.decode(sent)) == loaded


def test_setting_of_another_version_is_named() -> None:
    document = document_of(load_settings({}, {}))
    document["settings"]["from_the_future"] = 1
    with pytest.raises(ValueError, match="from_the_future"):
        loaded_from(document)
