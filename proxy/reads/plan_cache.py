"""Caches the plans of reads, so that a repeated read is neither decoded nor rewritten again.

Dashboards send the same reads repeatedly. The plan of a read depends only on the bytes of its body (without the session
fields), on the collection and on the backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from catalog.namespaces import VirtualCollection
from proxy.reads.cursor_stream import Renaming
from proxy.request.command import Command
from proxy.request.field_types import is_plain
from proxy.request.recognition import Memory, Remembered
from proxy.request.session_fields import MAX_COMMAND_BYTES, SESSION_FIELDS, STATEMENT_FIELDS, TRANSACTION_FIELDS
from proxy.request.trace_context import may_carry_trace
from rewrite.plan import Cursor, Single
from rewrite.profile import Profile

DECODED: Final = 32
"""Upper bound of the memory of a decoded document, relative to its bytes."""
LONGEST_BYTES: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class Question:
    """A read as its client sent it: its own raw fields, and the raw session fields to be sent with it."""

    asked: bytes
    session: bytes
    in_transaction: bool


def question(command: Command, also_left_out: bytes = b"") -> Question | None:
    """``command`` split without decoding it.

    ``None`` if it repeats a name, if its session fields have unusual types or are refused by the backend, or if it is
    too long to be analysed.
    """
    body, fields = command.body, command.fields
    if len(body) > MAX_COMMAND_BYTES:
        return None
    autocommit = fields.get(b"autocommit")
    in_transaction = autocommit is not None and body[autocommit[1] - 12 : autocommit[2]] == b"\x08autocommit\0\0"
    if b"stmtIds" in fields or (not in_transaction and not TRANSACTION_FIELDS.isdisjoint(fields)):
        return None
    asked: list[bytes] = []
    session: list[bytes] = []
    size = 5
    for name, (_, start, end) in fields.items():
        begin = start - len(name) - 2
        size += end - begin
        if name not in SESSION_FIELDS:
            if name not in (b"$db", also_left_out):
                asked.append(body[begin:end])
            continue
        if not is_plain(name, body[begin : begin + 1] + body[start:end]):
            return None
        if name not in STATEMENT_FIELDS:
            session.append(body[begin:end])
    if size != len(body):
        return None
    return Question(b"".join(asked), b"".join(session), in_transaction)


class CachedPlan(Remembered):
    """A plan of one step over the client's own connection. Immutable.

    ``document``: the step's raw body; ``renaming`` renames the cursor of its reply.
    """

    __slots__ = ("document", "plan", "profile", "renaming", "target")

    def __init__(
        self,
        target: VirtualCollection,
        profile: Profile,
        plan: Single | Cursor,
        document: bytes,
        renaming: Renaming | None = None,
        weight_bytes: int | None = None,
    ) -> None:
        """``weight_bytes``: its size, if it shares the decoded plan with another one."""
        # The raw document, and what the rewriter keeps of it decoded.
        super().__init__((1 + DECODED) * len(document) + 1_500 if weight_bytes is None else weight_bytes)
        self.target = target
        self.profile = profile
        self.plan = plan
        self.document = document
        self.renaming = renaming

    def like(self, document: bytes) -> CachedPlan:
        """A plan with another document, whose reply is processed in the same way."""
        return CachedPlan(self.target, self.profile, self.plan, document, self.renaming, len(document) + 500)


class PlanCache:
    """The plans by question and collection."""

    def __init__(self, memory: Memory) -> None:
        """``memory`` keeps the plans."""
        self._memory = memory

    def find(
        self, database: bytes, question: Question, target: VirtualCollection, profile: Profile
    ) -> CachedPlan | None:
        """The plan for the same question, if it was made for this ``target`` and ``profile``."""
        kept = self._memory.get((question.asked, database, question.in_transaction))
        if not isinstance(kept, CachedPlan) or kept.target is not target or kept.profile is not profile:
            return None
        return kept

    def keep(self, database: bytes, question: Question, kept: CachedPlan) -> None:
        """Keep a plan, unless it is too long, or the client passes another trace context each time."""
        if may_carry_trace(question.asked) or len(question.asked) > LONGEST_BYTES or len(kept.document) > LONGEST_BYTES:
            return
        self._memory.put((question.asked, database, question.in_transaction), kept)
