"""What the environment asks of a run."""

from __future__ import annotations

import os

from tests.support.versions import DEFAULT_VERSION

SCALE = float(os.environ.get("TSPROXY_TEST_SCALE", "1"))
"""How many times the default number of examples property tests run; 20 is the full size."""

MONGOD_VERSION = os.environ.get("TSPROXY_TEST_MONGOD_VERSION", DEFAULT_VERSION)
"""The version of the servers that ``mongod`` and ``replica_set`` start; ``make test-matrix`` sets it."""

SERVER = tuple(int(part) for part in MONGOD_VERSION.split("."))
"""``MONGOD_VERSION`` to compare with; where there are fixtures, ``mongod_version`` is the same."""
