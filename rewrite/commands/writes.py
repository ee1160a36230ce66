"""The rewriters of commands that change measurements."""

from __future__ import annotations

from collections.abc import Mapping

from rewrite.commands.schema import cleared_by_direct_write
from rewrite.plan import Rewriter

WRITES: Mapping[str, Rewriter] = {
    "delete": cleared_by_direct_write,
    "findAndModify": cleared_by_direct_write,
    "findandmodify": cleared_by_direct_write,
    "update": cleared_by_direct_write,
}
