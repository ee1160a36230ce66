"""The rewriters of commands that change measurements."""

from __future__ import annotations

from collections.abc import Mapping

from rewrite.commands.delete import rewrite_delete
from rewrite.commands.find_and_modify import rewrite_find_and_modify
from rewrite.commands.update import rewrite_update
from rewrite.plan import Rewriter

WRITE_REWRITERS: Mapping[str, Rewriter] = {
    "delete": rewrite_delete,
    "findAndModify": rewrite_find_and_modify,
    "findandmodify": rewrite_find_and_modify,
    "update": rewrite_update,
}
