"""What every rule may know about the collection and the command that is being rewritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from catalog.namespaces import Namespace, VirtualCollection
from rewrite.profile import Profile


@dataclass(frozen=True, slots=True)
class Scope:
    """One pipeline's surroundings.

    ``compares_like_buckets`` tells whether strings compare in this query as they did when
    ``control.min`` and ``control.max`` were folded: without it no string bound is sound (Q14, H3).
    ``extended_range`` tells whether times outside 1970–2106 may be stored: then ``_id`` order is not time
    order (Q12). ``lastpoint_indexes``: see ``VirtualCollection``.
    """

    buckets: Namespace
    time_field: str
    meta_field: str | None
    span_seconds: int
    profile: Profile
    compares_like_buckets: bool = True
    extended_range: bool = False
    in_transaction: bool = False
    lastpoint_indexes: frozenset[tuple[str, int]] | None = None
    may_guess: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        target: VirtualCollection,
        profile: Profile,
        collation: Any = None,
        *,
        in_transaction: bool = False,
        let: Any = None,
    ) -> Scope:
        """The scope of a command on ``target`` with these options ``collation`` and ``let`` (``None`` for none)."""
        return cls(
            buckets=target.buckets,
            time_field=target.options.time_field,
            meta_field=target.options.meta_field,
            span_seconds=target.options.max_span_seconds,
            profile=profile,
            compares_like_buckets=same_collation(collation, target.collation),
            extended_range=target.extended_range,
            in_transaction=in_transaction,
            lastpoint_indexes=target.lastpoint_indexes,
            variables=let if isinstance(let, Mapping) else {},
        )

    @property
    def plain_names(self) -> bool:
        """Whether the time and meta field can be spelled in paths at all (C3 admits names that cannot)."""
        return _are_plain(self.time_field, self.meta_field)


LONGEST_NAME = 255
"""A longer name would make commands of it that are much longer than those of clients."""


@lru_cache(maxsize=1024)
def _are_plain(time_field: str, meta_field: str | None) -> bool:
    names = (time_field,) if meta_field is None else (time_field, meta_field)
    return all(
        0 < len(name) <= LONGEST_NAME and not name.startswith("$") and "." not in name and "\0" not in name
        for name in names
    )


def same_collation(wanted: Any, stored: Mapping[str, Any] | None) -> bool:
    """Whether ``wanted`` certainly compares as the stored default does; an unexpanded locale is not certain."""
    if wanted is None or wanted == {}:
        return True
    if not isinstance(wanted, dict):
        return False
    if stored is None:
        return dict(wanted) == {"locale": "simple"}
    return dict(wanted) == dict(stored)
