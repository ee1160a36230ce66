"""Finds the names in PromQL expressions, without a parser: enough for rules and dashboards of this project."""

from __future__ import annotations

import re
from dataclasses import dataclass

_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_NAME = re.compile(r"(?<![\w$:.])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?(\s*\()?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_KEYWORDS = frozenset(("and", "or", "unless", "offset", "bool", "inf", "nan"))


@dataclass(frozen=True)
class Matcher:
    """One comparison of a selector, such as ``way="ingest"``."""

    label: str
    operator: str
    value: str


@dataclass(frozen=True)
class Selector:
    """A metric with its comparisons."""

    metric: str
    matchers: tuple[Matcher, ...]


def selectors(expression: str) -> list[Selector]:
    """The metrics that an expression reads, in order."""
    text = _RANGE.sub("", _GROUPING.sub(" ", expression))
    return [
        Selector(name, tuple(Matcher(*parts) for parts in _MATCHER.findall(braces)))
        for name, braces, call in _NAME.findall(text)
        if not call and name.lower() not in _KEYWORDS
    ]


def grouping_labels(expression: str) -> set[str]:
    """The labels that ``by``, ``without``, ``on`` and ``ignoring`` name."""
    return {label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",")}
