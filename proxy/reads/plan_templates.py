"""Makes the plans of reads that differ from earlier ones only in the series and the times that they ask for.

A dashboard asks for another minute each time, and for one host after the other. The plan of such a read has the value
for the series as it was sent, and the times as they were sent or as a bound that follows from them: earlier or later by
the span of a bucket, or as an id (Q11, Q12). So it is enough to plan a few reads of a shape. A template is learned from
the plans of two made-up reads: the first one shows where values stand, and the second one, like the read that a client
has sent, must get the same plan from the template as from the rewriter, byte by byte. Otherwise reads of this shape are
planned each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from catalog.namespaces import VirtualCollection
from proxy.reads.plan_cache import CachedPlan, Question
from proxy.reads.plan_slots import HIGH, LOW, META, OBJECT_ID, Slot, filled, millis_of, shape_of, slots_of
from proxy.request.command import Command
from proxy.request.recognition import Memory, Remembered
from proxy.wire.framing import STRING
from rewrite.plan import Cursor, Single
from rewrite.profile import Profile

LONGEST_BYTES: Final = 2 * 1024
"""Longer reads are planned each time; a template takes three plans."""

SAME: Final = 0
EARLIER: Final = 1
LATER: Final = 2
FIRST_ID: Final = 3
LAST_ID: Final = 4
"""What becomes of a value: itself, earlier or later by the span of a bucket, the lowest or highest id at that time."""
_FORMS: Final = {META: (SAME,), LOW: (SAME, EARLIER, FIRST_ID), HIGH: (SAME, LATER, LAST_ID)}
_TEMPLATE: Final = b"template"
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz"


def formed(value: bytes, form: int, span_seconds: int) -> bytes:
    """What the plan has for this value (Q11, Q12)."""
    if form == SAME:
        return value
    time_ms = millis_of(value)
    if form == EARLIER:
        return (time_ms - 1000 * span_seconds).to_bytes(8, "little", signed=True)
    if form == LATER:
        return (time_ms + 1000 * span_seconds).to_bytes(8, "little", signed=True)
    if form == FIRST_ID:
        return (time_ms // 1000 - span_seconds).to_bytes(4, "big") + bytes(8)
    return (-(-time_ms // 1000)).to_bytes(4, "big") + b"\xff" * 8


class Template(Remembered):
    """The document of plans of one shape, in pieces between which values stand; no pieces: there is no template."""

    __slots__ = ("_fills", "_pieces", "model")

    def __init__(
        self, model: CachedPlan | None, pieces: Sequence[bytes] = (), fills: Sequence[tuple[int, int]] = ()
    ) -> None:
        """``model``: the plan of a read of this shape. ``fills``: number of the slot and its form after each piece."""
        super().__init__(500 + 2 * sum(map(len, pieces)) + (0 if model is None else model.weight_bytes))
        self.model = model
        self._pieces = tuple(pieces)
        self._fills = tuple(fills)

    @property
    def is_fit(self) -> bool:
        """Whether plans can be made with it."""
        return bool(self._fills)

    def document(self, values: Sequence[bytes], span_seconds: int) -> bytes:
        """The document for these values of the slots."""
        parts: list[bytes] = []
        for piece, (number, form) in zip(self._pieces, self._fills, strict=False):
            parts.append(piece)
            parts.append(formed(values[number], form, span_seconds))
        parts.append(self._pieces[-1])
        return b"".join(parts)


Planner = Callable[[Command, VirtualCollection], CachedPlan | None]


class PlanTemplates:
    """The templates by shape and collection."""

    def __init__(self, memory: Memory, plan: Planner) -> None:
        """``memory`` keeps the templates; ``plan`` asks the rewriter."""
        self._memory = memory
        self._plan = plan

    def plan(
        self, command: Command, asked: Question, database: bytes, target: VirtualCollection, profile: Profile
    ) -> CachedPlan | None:
        """The plan of a read, from a template if there is one."""
        slots = slots_of(command, target) if len(asked.asked) <= LONGEST_BYTES else None
        if slots is None:
            return self._plan(command, target)
        key = (shape_of(command, slots), database, asked.in_transaction, _TEMPLATE)
        known = self._memory.get(key)
        template = known if isinstance(known, Template) else None
        model = None if template is None else template.model
        if template is not None and model is not None and model.target is target and model.profile is profile:
            if not template.is_fit:
                return self._plan(command, target)
            document = template.document([slot.value for slot in slots], target.options.max_span_seconds)
            return model.like(document)
        made = self._plan(command, target)
        if made is not None:
            # The second read of a shape shows that it is worth a template.
            self._memory.put(key, Template(None) if template is None else self._learned(command, slots, made))
        return made

    def _learned(self, command: Command, slots: Sequence[Slot], made: CachedPlan) -> Template:
        span_seconds = made.target.options.max_span_seconds
        maker = random.Random(0)  # noqa: S311 - any values will do
        first, second = _made_up(slots, maker), _made_up(slots, maker)
        example = self._planned(command, slots, first, made)
        test = self._planned(command, slots, second, made)
        if example is None or test is None:
            return Template(made)
        pieces, fills = _cut(example, slots, first, span_seconds)
        template = Template(made, pieces, fills)
        actual = [slot.value for slot in slots]
        for values, document in ((first, example), (second, test), (actual, made.document)):
            if template.document(values, span_seconds) != document:
                return Template(made)
        return template

    def _planned(
        self, command: Command, slots: Sequence[Slot], values: Sequence[bytes], made: CachedPlan
    ) -> bytes | None:
        """The document of the plan for these values; ``None`` if anything else of the plan differs from ``made``."""
        body = filled(command.body, slots, values)
        other = Command(command.name, command.namespace, body, command.fields, command.message, command.sequences)
        planned = self._plan(other, made.target)
        return planned.document if planned is not None and _are_alike(planned.plan, made.plan) else None


def _are_alike(one: Single | Cursor, other: Single | Cursor) -> bool:
    """Whether replies are processed in the same way."""
    if (one.otherwise is None) is not (other.otherwise is None) or one.reshape_error is not other.reshape_error:
        return False
    if isinstance(one, Single) and isinstance(other, Single):
        return one.reshape is other.reshape and one.reshape_raw is other.reshape_raw
    return isinstance(one, Cursor) and isinstance(other, Cursor) and one.namespace == other.namespace


def _made_up(slots: Sequence[Slot], maker: random.Random) -> list[bytes]:
    """Other values of the same types and lengths; the lower bound of the time is below the upper one."""
    return [_value(slot, maker) for slot in slots]


def _value(slot: Slot, maker: random.Random) -> bytes:
    if slot.role == LOW:
        return maker.randrange(1_000_000_000_000, 1_500_000_000_000).to_bytes(8, "little")
    if slot.role == HIGH:
        return maker.randrange(1_600_000_000_000, 2_000_000_000_000).to_bytes(8, "little")
    if slot.kind == STRING:
        return slot.value[:4] + bytes(maker.choices(_LETTERS, k=slot.end - slot.start - 5)) + b"\0"
    if slot.kind == OBJECT_ID:
        return maker.randbytes(12)
    return maker.randrange(1 << 29, 1 << 30).to_bytes(slot.end - slot.start, "little")


def _cut(
    document: bytes, slots: Sequence[Slot], values: Sequence[bytes], span_seconds: int
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """The pieces of a document and what stands between them, wherever it has a form of one of the values."""
    found: list[tuple[int, int, int, int]] = []
    for number, (slot, value) in enumerate(zip(slots, values, strict=True)):
        for form in _FORMS[slot.role]:
            sought = formed(value, form, span_seconds)
            at = document.find(sought)
            while at >= 0:
                found.append((at, at + len(sought), number, form))
                at = document.find(sought, at + len(sought))
    found.sort()
    pieces, fills, position = [], [], 0
    for start, end, number, form in found:
        if start < position:
            # Ambiguous; what is made of it will not be equal to the plans.
            continue
        pieces.append(document[position:start])
        fills.append((number, form))
        position = end
    return [*pieces, document[position:]], fills
