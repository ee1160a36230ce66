"""Which commands read measurements."""

from rewrite.commands.reads import READ_REWRITERS
from rewrite.registry import REWRITERS


def test_registered() -> None:
    assert READ_REWRITERS.items() <= REWRITERS.items()
    assert {"aggregate", "count", "distinct", "explain", "find", "mapReduce"} <= set(READ_REWRITERS)
