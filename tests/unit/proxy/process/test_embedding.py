"""Without an embedded mongod there is nothing to start; with one, tests/clients/test_process.py shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.process.embedding import Embedding
from proxy.settings.config import ConfigurationError
from proxy.settings.table import Settings


async def test_backend_of_the_settings_is_used() -> None:
    embedding, settings = Embedding(), Settings(backend="mongodb://db.example/")
    async with embedding.backend(settings, lambda error: None) as chosen:
        assert chosen is settings
    assert (embedding.restarts, embedding.stop_seconds, embedding.why_not_ready()) == (0, 0.0, "")


async def test_program_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    program = tmp_path / "mongod"
    program.touch()
    with pytest.raises(ConfigurationError, match="not an executable file"):
        async with Embedding().backend(Settings(embedded_mongod=program), lambda error: None):
            pass
