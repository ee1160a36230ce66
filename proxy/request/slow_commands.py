"""The slow log: describes slow commands, logs and counts them, and keeps the latest.

Nothing here runs for a command that was not slow. Every slow command is counted. A limited number of them in a second
is described, because that parses the command, and everything may be slow at once when the backend stalls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import bson
import structlog
from bson import json_util

from catalog.bson.codec import CODEC
from catalog.bson.raw import STRING, MalformedBSON, fields_of
from catalog.errors import CommandError, code_name
from proxy.observe.allowance import Allowance
from proxy.observe.bounded_counts import OTHERS
from proxy.observe.slow_numbers import SlowNumbers
from proxy.observe.slow_ring import SlowEntry, SlowRing
from proxy.request.command import Command
from proxy.request.command_table import TABLE
from proxy.request.exchange import Exchange
from proxy.request.naming import LONGEST_TEXT, documents_in, name_of, namespace_of, parsed_or_none, printable
from proxy.request.session import Session
from proxy.request.shape import shape_of, shape_of_command
from proxy.request.slow_reply import ReplySummary, reply_of
from proxy.request.slow_threshold import Ended, SlowThreshold
from proxy.request.slow_times import spent_by, way_of

EVENT: Final = "slow command"

DESCRIBED_A_SECOND: Final = 20
DESCRIBED_AT_ONCE: Final = 100
"""Slow commands that are described in one second, and at most at once; all others are counted only."""
ATTRIBUTED_A_SECOND: Final = 2_000
"""Slow commands whose comment and application are looked up; those of all others count as ``other``."""
_COMMENT: Final = b"comment\0"
_LONGEST_SEARCH_BYTES: Final = 64 * 1024

Steps = Callable[[Command], Iterable[Mapping[str, Any]]]
"""The bodies of the steps that a command on a time-series collection is rewritten to, as far as they are known."""

log = structlog.get_logger("tsproxy.slow")


def no_steps(command: Command) -> Iterable[Mapping[str, Any]]:
    """For a proxy that rewrites nothing."""
    return ()


class SlowCommands:
    """Describes slow commands.

    ``threshold``, ``shows_plans`` may be changed at any time; ``ring`` has the latest descriptions.
    """

    def __init__(
        self,
        threshold_ms: float | None,
        numbers: SlowNumbers,
        on_error: Callable[[BaseException], None],
        *,
        steps: Steps = no_steps,
        shows_plans: bool = False,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """``threshold_ms``: ``None`` if no command is slow. ``shows_plans``: whether the rewritten form is shown.

        ``on_error`` gets internal errors.
        """
        self.threshold = SlowThreshold(math.inf, self.report)
        self.set_threshold_ms(threshold_ms)
        self.shows_plans = shows_plans
        self.ring = SlowRing()
        self._numbers = numbers
        self._on_error = on_error
        self._steps = steps
        self._now_seconds = now_seconds
        started_seconds = now_seconds()
        self._descriptions = Allowance(DESCRIBED_A_SECOND, DESCRIBED_AT_ONCE, started_seconds)
        self._attributions = Allowance(ATTRIBUTED_A_SECOND, ATTRIBUTED_A_SECOND, started_seconds)
        self._omitted = 0
        numbers.threshold_seconds = lambda: self.threshold.seconds

    def set_threshold_ms(self, threshold_ms: float | None) -> None:
        """Change the threshold; ``None``: no command is slow."""
        self.threshold.seconds = math.inf if threshold_ms is None else threshold_ms / 1000

    def report(self, exchange: Exchange, ended: Ended) -> None:
        """A command was slow. Raises nothing."""
        try:
            self._report(exchange, ended)
        except Exception as error:  # noqa: BLE001 - reported; the command has its reply already
            self._on_error(error)

    def record(self, namespace: str, reason: str) -> None:
        """Keep what was logged elsewhere: an insert that creates an ordinary collection."""
        self.ring.add(SlowEntry(_now(), reason, {"namespace": printable(namespace), "command": "insert"}))

    def _report(self, exchange: Exchange, ended: Ended) -> None:
        way = way_of(exchange)
        name = name_of(exchange)
        if way == "answer" or (name == "getMore" and ended.disconnected):
            # A hello waits for changes; so may the getMore of a change stream.
            return
        reply = reply_of(ended)
        if name == "getMore" and reply.waits_for_data:
            return
        times = exchange.known_times
        if times is not None and times.is_reported:
            return
        if ended.disconnected:
            # The command may end later, and would be reported again.
            exchange.times().is_reported = True
        self._numbers.count(name if name in TABLE else OTHERS, way)
        now_seconds = self._now_seconds()
        if not self._attributions.take(now_seconds):
            self._numbers.comments.count(OTHERS)
            self._numbers.applications.count(OTHERS)
            self._omit()
            return
        described = self._descriptions.take(now_seconds)
        command = parsed_or_none(exchange) if described or _has_comment(exchange.message.raw) else None
        comment = "" if command is None else _comment(command)
        application = application_of(exchange.session.home or exchange.session)
        if comment:
            self._numbers.comments.count(comment)
        if application:
            self._numbers.applications.count(application)
        if not described:
            self._omit()
            return
        values: dict[str, Any] = {"namespace": _namespace(command), "command": printable(name), "way": way}
        values |= _durations(exchange, ended)
        values |= _client(exchange.session.home or exchange.session)
        values |= {"application": application, "comment": comment}
        values |= _sizes(exchange, command, reply) | _outcome(reply)
        if command is not None:
            values["shape"] = shape_of_command(command)
            if self.shows_plans and way == "translate":
                values["rewritten"] = self._rewritten(exchange, command)
        self._keep({key: value for key, value in values.items() if value not in ("", None, [])})

    def _omit(self) -> None:
        self._numbers.not_logged += 1
        self._omitted += 1

    def _keep(self, values: dict[str, Any]) -> None:
        self.ring.add(SlowEntry(_now(), EVENT, values))
        omitted, self._omitted = self._omitted, 0
        log.info(EVENT, **values, **({"not_logged_before": omitted} if omitted else {}))

    def _rewritten(self, exchange: Exchange, command: Command) -> list[str]:
        times = exchange.known_times
        steps = times.steps if times is not None and times.steps else self._steps(command)
        shapes = []
        for body in steps:
            try:
                shapes.append(shape_of(bson.encode(body, codec_options=CODEC)))
            except (bson.errors.BSONError, ValueError, TypeError):
                shapes.append("?")
        return shapes


def application_of(session: Session) -> str:
    """The application name in the client's metadata; ``""`` if it has sent none."""
    try:
        client = fields_of(session.upstream.hello).get(b"client", b"")
        application = fields_of(client, 1).get(b"application", b"")
        name = fields_of(application, 1).get(b"name", b"")
    except (MalformedBSON, IndexError):
        return ""
    return printable(name[5:-1].decode(errors="replace")) if name[:1] == bytes([STRING]) else ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _has_comment(raw: bytes) -> bool:
    return raw.find(_COMMENT, 0, _LONGEST_SEARCH_BYTES) >= 0


def _namespace(command: Command | None) -> str:
    if command is None:
        return ""
    namespace = namespace_of(command)
    return printable(str(namespace) if namespace.collection else namespace.database)


def _comment(command: Command) -> str:
    """The comment of the command as text; of another type than string, as JSON."""
    try:
        comment = command.get("comment", LONGEST_TEXT * 8)
    except CommandError:
        return ""
    if comment is None or isinstance(comment, str):
        return printable(comment or "")
    try:
        return printable(json_util.dumps(comment, json_options=json_util.RELAXED_JSON_OPTIONS))
    except (TypeError, ValueError, OverflowError):
        return printable(type(comment).__name__)


def _client(session: Session) -> dict[str, Any]:
    users = ",".join(map(str, session.identity.users))
    return {"peer": session.peer, "connection": session.connection_id, "user": printable(users)}


def _durations(exchange: Exchange, ended: Ended) -> dict[str, Any]:
    # Rounded parts must add up to the rounded whole.
    shown = {f"{name}_ms": round(seconds * 1000, 3) for name, seconds in spent_by(exchange, ended).items()}
    return {"duration_ms": round(sum(shown.values()), 3), **shown}


def _sizes(exchange: Exchange, command: Command | None, reply: ReplySummary) -> dict[str, Any]:
    return {
        "documents_in": None if command is None else documents_in(command),
        "bytes_in": len(exchange.message.raw),
        "documents_out": reply.documents,
        "bytes_out": reply.size_bytes,
    }


def _outcome(reply: ReplySummary) -> dict[str, Any]:
    named = {"code": reply.code, "code_name": code_name(reply.code)} if reply.code else {}
    return {"outcome": reply.outcome, **named}
