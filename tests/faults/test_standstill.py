"""Everything stands still for longer than the proxies have patience, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.standstill import survive
from tests.support.mongod import MongodProcess


@pytest.mark.timeout(240)
def test_everything_stands_still_and_goes_on(
    backend: MongodProcess, tmp_path: Path, database: str, scale: float
) -> None:
    """Waits of the driver are over all at once, as are the proxies' own; no wait may be left that nobody ends."""
    flags = ("--server-selection-timeout-ms", "1500")
    survive(backend, tmp_path, database, [2.0, 0.6, 3.0] * max(1, round(scale)), flags)
