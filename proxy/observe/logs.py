"""Logs to standard error, as text or JSON, without passwords."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal, TypeAlias

import structlog

from proxy.settings.redaction import redact_uri

_form: Literal["console", "json"] = "console"

LONGEST_TEXT = 8_192
"""Maximum length of one value in a log message, in characters."""


Level: TypeAlias = Literal["debug", "info", "warning", "error"]


def configure(level: Level, form: Literal["console", "json"], worker: int | None = None) -> None:
    """Send messages of ``structlog`` and ``logging`` from ``level`` upwards to standard error.

    Each names the ``worker`` if it comes from one of several.
    """
    global _form  # noqa: PLW0603 - as global as the configuration of the loggers
    _form = form
    render: structlog.types.Processor
    if form == "json":
        render = structlog.processors.JSONRenderer()
    else:
        render = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
        )
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        *([] if worker is None else [_naming(worker)]),
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=form == "json"),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        # Levels are checked for each message, not in the class of the loggers, so that ``set_level`` can change them.
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,  # first to text, then masked
                mask_secrets,
                render,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(level)


def _naming(worker: int) -> structlog.types.Processor:
    def name(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["worker"] = worker
        return event

    return name


def set_level(level: Level) -> None:
    """Send messages from ``level`` upwards from now on."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    logging.getLogger("pymongo").setLevel(max(root.level, logging.WARNING))  # each command would be a line


def is_json() -> bool:
    """Whether messages are JSON objects."""
    return _form == "json"


def mask_secrets(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask passwords of connection strings in all logged values."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = redact_uri(shortened(value))
        elif isinstance(value, BaseException):
            event[name] = redact_uri(shortened(f"{type(value).__name__}: {value}"))
    return event


def shortened(text: str) -> str:
    """The beginning and the end of a text, because an error may quote a whole message of a client."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"
