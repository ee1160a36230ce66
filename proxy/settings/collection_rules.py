"""Rules that make new collections time-series collections: their text, and which of them is for a name.

A rule is ``DATABASE.COLLECTION -> timeField=NAME …``. In both names ``*`` stands for any characters. The first rule
whose names fit is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from catalog.namespaces import Granularity, Namespace

SYNTAX: Final = (
    "DATABASE.COLLECTION -> timeField=NAME [metaField=NAME] [granularity=WORD | bucketMaxSpanSeconds=NUMBER] "
    "[expireAfterSeconds=NUMBER]"
)
OWN_DATABASES: Final = frozenset({"admin", "config", "local"})
"""Databases of the server; patterns do not cover them."""

CUSTOM_SPANS_SINCE: Final = (6, 3, 0)
"""The first version with spans other than those of a granularity (C44)."""

_MOST_SPAN_SECONDS: Final = 31_536_000
_MOST_EXPIRE_SECONDS: Final = 1_000_000_000
"""Servers refuse times that lie before 1970."""
_NOT_IN_DATABASES: Final = frozenset('/\\ "$')
_SPAN: Final = "bucketMaxSpanSeconds"
_ROUNDING: Final = "bucketRoundingSeconds"
_EXPIRE: Final = "expireAfterSeconds"
_SYSTEM: Final = "system."


@dataclass(frozen=True, slots=True)
class CollectionRule:
    """One rule. ``database`` and ``collection`` are the texts between the wildcards of the pattern.

    ``timeseries``: the value of that option of ``create``; ``expire_after_seconds``: ``None`` for no expiry.
    """

    pattern: str
    database: tuple[str, ...]
    collection: tuple[str, ...]
    timeseries: Mapping[str, str | int]
    expire_after_seconds: int | None = None

    def covers(self, namespace: Namespace) -> bool:
        """Whether a new collection of this name is created by this rule."""
        return _fits(self.database, namespace.database) and _fits(self.collection, namespace.collection)

    @property
    def has_custom_span(self) -> bool:
        """Whether the rule requires a server from ``CUSTOM_SPANS_SINCE``."""
        return _SPAN in self.timeseries


def rule_for(rules: Sequence[CollectionRule], namespace: Namespace) -> CollectionRule | None:
    """The first rule that covers this name; ``None`` for no rule, and for collections of the system."""
    if namespace.database in OWN_DATABASES or namespace.collection.startswith(_SYSTEM):
        return None
    for rule in rules:
        if rule.covers(namespace):
            return rule
    return None


def unsupported(rules: Sequence[CollectionRule], version: tuple[int, ...], *, has_timeseries: bool) -> str:
    """Why a server of this version cannot create the collections of all rules; empty if it can.

    ``has_timeseries``: whether it has time-series collections; its version alone does not tell.
    """
    shown = ".".join(map(str, version))
    if rules and not has_timeseries:
        return f"the backend, which reports version {shown}, has no time-series collections; use MongoDB 5.0 or later"
    for rule in rules:
        if rule.has_custom_span and version < CUSTOM_SPANS_SINCE:
            return f"{rule.pattern}: {_SPAN} requires MongoDB 6.3 or later, and the backend is {shown}"
    return ""


def parse_rules(texts: Sequence[str]) -> tuple[CollectionRule, ...]:
    """The rules in their order; raises ``ValueError`` for the first that is not valid."""
    rules: list[CollectionRule] = []
    for text in texts:
        rule = parse_rule(text)
        if any(rule.pattern == earlier.pattern for earlier in rules):
            raise ValueError(f"the pattern {rule.pattern} occurs twice: only the first rule would be used")
        rules.append(rule)
    return tuple(rules)


def parse_rule(text: str) -> CollectionRule:
    """One rule from its text; raises ``ValueError`` with the reason."""
    pattern, arrow, options = (part.strip() for part in text.partition("->"))
    if not arrow:
        raise ValueError(f"{text!r} has no '->': expected {SYNTAX}")
    database, dot, collection = pattern.partition(".")
    _check_names(pattern, database, collection if dot else "")
    given = _options(pattern, options)
    expire = given.pop(_EXPIRE, None)
    _check_options(pattern, given)
    if _SPAN in given:
        # Servers accept no other value (C44).
        given[_ROUNDING] = given[_SPAN]
    return CollectionRule(
        pattern=pattern,
        database=tuple(database.split("*")),
        collection=tuple(collection.split("*")),
        timeseries=given,
        expire_after_seconds=None if expire is None else int(expire),
    )


def _check_names(pattern: str, database: str, collection: str) -> None:
    if not database or not collection:
        raise ValueError(f"the pattern {pattern!r} is not DATABASE.COLLECTION")
    if not _NOT_IN_DATABASES.isdisjoint(database):
        raise ValueError(f"no database name fits the pattern {pattern!r}")
    if database in OWN_DATABASES:
        raise ValueError(f"the pattern {pattern!r} names the server's own database {database}")
    if "$" in collection or collection.startswith(_SYSTEM):
        raise ValueError(f"the pattern {pattern!r} names collections of the system")


def _options(pattern: str, text: str) -> dict[str, str | int]:
    given: dict[str, str | int] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        read = _OPTIONS.get(name)
        if read is None:
            raise ValueError(f"{pattern}: unknown option {name!r}; known ones are {', '.join(_OPTIONS)}")
        if not equals or not value:
            raise ValueError(f"{pattern}: {name} has no value")
        if name in given:
            raise ValueError(f"{pattern}: {name} occurs twice")
        try:
            given[name] = read(value)
        except ValueError as error:
            raise ValueError(f"{pattern}: {name}={value} is not valid: {error}") from None
    return given


def _check_options(pattern: str, given: Mapping[str, str | int]) -> None:
    if "timeField" not in given:
        raise ValueError(f"{pattern}: timeField is missing")
    if given.get("metaField") == given["timeField"]:
        raise ValueError(f"{pattern}: metaField must differ from timeField")
    if _SPAN in given and "granularity" in given:
        raise ValueError(f"{pattern}: granularity and {_SPAN} exclude each other")


def _field(value: str) -> str:
    if "." in value or value.startswith("$") or value == "_id":
        raise ValueError("expected the name of a field at the top level of a document, other than _id")
    return value


def _granularity(value: str) -> str:
    words = [each.value for each in Granularity]
    if value not in words:
        raise ValueError(f"expected one of {', '.join(words)}")
    return value


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not (value.isascii() and value.isdigit()) or not least <= int(value[:12]) <= most or len(value) > 12:
            raise ValueError(f"expected a whole number from {least} to {most}")
        return int(value)

    return read


_OPTIONS: Final[Mapping[str, Callable[[str], str | int]]] = {
    "timeField": _field,
    "metaField": _field,
    "granularity": _granularity,
    _SPAN: _number(1, _MOST_SPAN_SECONDS),
    _EXPIRE: _number(0, _MOST_EXPIRE_SECONDS),
}


def _fits(pieces: tuple[str, ...], name: str) -> bool:
    """Whether ``name`` is these texts with any characters between them; takes time linear in the pattern's pieces."""
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return name == first
    end = len(name) - len(last)
    if not name.startswith(first) or not name.endswith(last) or len(first) > end:
        return False
    position = len(first)
    for piece in pieces[1:-1]:
        found = name.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True
