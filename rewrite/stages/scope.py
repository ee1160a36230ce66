"""The properties of the collection and the command that rules use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from catalog.namespaces import LONGEST_FIELD_NAME, Namespace, VirtualCollection
from rewrite.profile import Profile


@dataclass(frozen=True, slots=True)
class Scope:
    """The collection and the options of one pipeline.

    ``compares_like_buckets``: whether this query compares strings with the collation of ``control.min`` and
    ``control.max``; otherwise no bound on strings is correct (Q14, H3). ``extended_range``: whether times outside
    1970–2106 may be stored, so that ``_id`` order is not time order (Q12). ``mixed_types``, ``lastpoint_indexes``: see
    ``VirtualCollection``. ``may_guess``: whether the pipeline may fail with ``GUESS_FAILED``.
    """

    buckets: Namespace
    time_field: str
    meta_field: str | None
    span_seconds: int
    profile: Profile
    compares_like_buckets: bool = True
    extended_range: bool = False
    mixed_types: bool = False
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
        """The scope of a command on ``target``; ``collation`` and ``let`` are its options, ``None`` if missing."""
        return cls(
            buckets=target.buckets,
            time_field=target.options.time_field,
            meta_field=target.options.meta_field,
            span_seconds=target.options.max_span_seconds,
            profile=profile,
            compares_like_buckets=same_collation(collation, target.collation),
            extended_range=target.extended_range,
            mixed_types=target.mixed_types,
            in_transaction=in_transaction,
            lastpoint_indexes=target.lastpoint_indexes,
            variables=let if isinstance(let, Mapping) else {},
        )

    @property
    def plain_names(self) -> bool:
        """Whether the names of time and meta field can be used in paths; C3 allows other names, too."""
        return _are_plain(self.time_field, self.meta_field)


@lru_cache(maxsize=1024)
def _are_plain(time_field: str, meta_field: str | None) -> bool:
    names = (time_field,) if meta_field is None else (time_field, meta_field)
    return all(
        0 < len(name) <= LONGEST_FIELD_NAME and not name.startswith("$") and "." not in name and "\0" not in name
        for name in names
    )


def same_collation(wanted: Any, stored: Mapping[str, Any] | None) -> bool:
    """Whether ``wanted`` is certainly the stored default collation; a locale alone could be another one."""
    if wanted is None or wanted == {}:
        return True
    if not isinstance(wanted, dict):
        return False
    if stored is None:
        return dict(wanted) == {"locale": "simple"}
    return dict(wanted) == dict(stored)
