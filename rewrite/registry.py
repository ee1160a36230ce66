"""The rewriters by command. Other commands are relayed."""

from __future__ import annotations

from collections.abc import Mapping

from rewrite.commands.reads import READ_REWRITERS
from rewrite.commands.refused import REFUSED
from rewrite.commands.schema import SCHEMA
from rewrite.commands.statistics import STATISTICS
from rewrite.commands.writes import WRITE_REWRITERS
from rewrite.plan import Rewriter

REWRITERS: Mapping[str, Rewriter] = {**READ_REWRITERS, **WRITE_REWRITERS, **SCHEMA, **STATISTICS, **REFUSED}
