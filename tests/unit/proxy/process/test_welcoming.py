"""What a person sees first."""

from __future__ import annotations

from proxy.process.welcoming import welcome
from proxy.settings.table import Address, Settings

ADDRESS = Address("0.0.0.0", 27018)


def test_addresses_can_be_used_from_this_machine_and_passwords_are_hidden() -> None:
    text = "\n".join(welcome(Settings(backend="mongodb://u:secret@db.example/"), ADDRESS))
    assert 'mongosh "mongodb://127.0.0.1:27018/"' in text
    assert "http://127.0.0.1:9216/" in text
    assert "secret" not in text


def test_the_sample_is_for_the_embedded_mongod_only() -> None:
    text = "\n".join(welcome(Settings(), ADDRESS))
    assert "mongodb://127.0.0.1:27018/weather" in text
    assert "createCollection" in text
    text = "\n".join(welcome(Settings(backend="mongodb://db.example/"), ADDRESS))
    assert "weather" not in text
    assert "createCollection" not in text


def test_only_what_there_is_is_shown() -> None:
    text = "\n".join(welcome(Settings(status_page="off"), ADDRESS, has_timeseries=False))
    assert "createCollection" not in text
    assert "/metrics" in text
    assert "embedded mongod" in text
    assert "watch" not in "\n".join(welcome(Settings(status_listen=None), ADDRESS))
