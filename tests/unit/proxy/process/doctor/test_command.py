"""The command as a function: what it prints and returns (as a program: ``tests/clients/test_doctor.py``)."""

from __future__ import annotations

import json

from proxy.process.doctor.command import run
from proxy.settings.table import Settings
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port


def test_it_prints_text_or_json(mongod: MongodProcess) -> None:
    said: list[str] = []
    assert run(Settings(backend=mongod.uri), said.append, is_json=False, strict=False) == 0
    assert run(Settings(backend=mongod.uri), said.append, is_json=True, strict=False) == 0
    text, report = said
    assert mongod.address in text
    assert json.loads(report)["exit_code"] == 0


def test_it_returns_the_exit_code() -> None:
    settings = Settings(backend=f"mongodb://{LOOPBACK}:{free_port()}/")
    assert run(settings, lambda text: None, is_json=False, strict=False) == 1
