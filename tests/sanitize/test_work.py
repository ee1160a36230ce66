"""The work that ``make sanitize`` does, briefly and without sanitizers."""

from __future__ import annotations

import random
import time

from tests.sanitize import work


def test_the_kernel_works_alone_and_in_threads() -> None:
    assert work.alone(random.Random(5), time.monotonic() + 1) > 0
    assert work.threads(random.Random(5), time.monotonic() + 1) > 0
