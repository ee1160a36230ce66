"""Which errors at startup are waited out."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from catalog.errors import BackendUnavailable, CommandError
from proxy.process import patience


async def test_what_passes_is_tried_again_and_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE_SECONDS", 0.001)
    errors = [BackendUnavailable("down"), BackendUnavailable("down"), CommandError(10107, "no primary")]

    async def attempt() -> str:
        if errors:
            raise errors.pop(0)
        return "reached"

    with capture_logs() as logs:
        assert await patience.until_reached(attempt, lambda error: error.message) == "reached"
    assert [line["reason"] for line in logs] == ["down", "no primary"]


@pytest.mark.parametrize("error", [BackendUnavailable("refused", code=18), CommandError(13, "no account")])
async def test_what_somebody_must_mend_is_raised(error: CommandError) -> None:
    async def attempt() -> None:
        raise error

    with pytest.raises(CommandError) as caught:
        await patience.until_reached(attempt, lambda error: error.message)
    assert caught.value is error
