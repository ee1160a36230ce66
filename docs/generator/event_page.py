"""The page of log events, from the calls of loggers in the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from docs.generator.markdown import code, page, table
from docs.generator.sources import PLACEHOLDER, Source, sources

LEVELS = ("critical", "error", "warning", "info", "debug")
_LOGGERS = ("log", "noticed")
_OWN_LOGGER = "proxy.observe.limited_log"
"""Passes on the events of others."""

_INTRODUCTION = f"""
Every event that the proxy logs, by level. In JSON, the name is the value of `event`, beside `level`, `timestamp` and
the fields below, of which some are not always present; an unexpected error has its traceback, too. `{PLACEHOLDER}`
stands for fields that depend on the event: those of slow commands are in
[Operating](../operating.md#slow-commands), those of admin commands are `command`, `fields`, `peer` and `users`. What
to do about errors and warnings: [Troubleshooting](../guides/troubleshooting.md). Formats and levels:
[Operating](../operating.md#logs).
"""
_CRITICAL = f"""
`critical` is only the last line of a program that cannot go on: its event is the problem itself, and `exit_code` is
its [exit code](exit-codes.md). It is shown as `{PLACEHOLDER}` here.
"""


@dataclass(slots=True)
class Event:
    """One event: its levels, its fields in their order, and the modules that log it."""

    levels: set[str] = field(default_factory=set)
    fields: dict[str, None] = field(default_factory=dict)
    modules: dict[str, None] = field(default_factory=dict)


def _level_of(source: Source, call: ast.Call) -> tuple[str, ...]:
    """The levels at which a call may log; none if it is no call of a logger."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in LEVELS:
        owner = function.value
        if isinstance(owner, ast.Name) and owner.id in _LOGGERS:
            return (function.attr,)
        if isinstance(owner, ast.Call) and ast.unparse(owner.func) == "structlog.get_logger":
            return (function.attr,)
    if isinstance(function, ast.Name):
        methods = [
            each.attr
            for value in source.assigned(function.id)
            for each in ast.walk(value)
            if isinstance(each, ast.Attribute) and ast.unparse(each.value) in _LOGGERS and each.attr in LEVELS
        ]
        return tuple(methods)
    return ()


def _fields(call: ast.Call) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg != "exc_info":
            yield keyword.arg
        elif keyword.arg is None and not isinstance(keyword.value, ast.Dict):
            yield PLACEHOLDER


@cache
def events() -> dict[str, Event]:
    """Every event by its name, in the order of the modules."""
    found: dict[str, Event] = {}
    for source in sources().values():
        if source.module == _OWN_LOGGER:
            continue
        for call in source.calls():
            levels = _level_of(source, call)
            for name in source.texts(call.args[0]) if levels else ():
                event = found.setdefault(name, Event())
                event.levels.update(levels)
                event.fields.update(dict.fromkeys(_fields(call)))
                event.modules[source.module] = None
    return found


def event_page() -> str:
    """The whole page."""
    found = sorted(events().items())
    parts = [page("Log events", "the calls of loggers in the sources", _INTRODUCTION)]
    for level in LEVELS:
        rows = [
            [code(name), ", ".join(map(code, event.fields)), ", ".join(map(code, event.modules))]
            for name, event in found
            if level in event.levels
        ]
        parts.append(f"## {level}\n")
        if level == "critical":
            parts.append(_CRITICAL.strip() + "\n")
        parts.append(table(["event", "fields", "logged by"], rows))
    return "\n".join(parts)
