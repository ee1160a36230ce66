"""Spans of commands: one for each, with children for its rewriting, its steps at the backend and its commits.

Nothing here runs unless commands are traced. A span is made when its command ends, or before that when a group commit
refers to it. Attributes never contain values of documents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from catalog.errors import code_name
from proxy.observe.spans import Kind, Tracer
from proxy.request.command import Command
from proxy.request.command_table import GREETS, TABLE
from proxy.request.command_trace import CommandTrace, clock_offset_ns
from proxy.request.exchange import Exchange
from proxy.request.naming import documents_in, name_of, namespace_of, parsed_or_none, printable
from proxy.request.slow_threshold import Ended, SlowThreshold
from proxy.request.slow_times import is_committed_here, spent_by, way_of
from proxy.request.times import NOT_SENT, Part
from proxy.request.trace_context import carried_trace, may_carry_trace

OTHER: Final = "other"
"""The name of spans of commands that the command table does not list; clients can invent any."""
SYSTEM: Final = {"db.system.name": "mongodb"}

HostAndPort = tuple[str, int]


class CommandSpans:
    """Makes the spans of commands.

    ``watch`` is the threshold for commands while they are traced. ``listen``: the proxy's own address, once known.
    """

    def __init__(self, tracer: Tracer, slow: SlowThreshold, on_error: Callable[[BaseException], None]) -> None:
        """Commands that reach ``slow`` are reported there, too. ``on_error`` gets internal errors."""
        self.watch = SlowThreshold(0.0, self.report, records_spans=True)
        self._listen: HostAndPort | None = None
        self._tracer = tracer
        self._slow = slow
        self._on_error = on_error

    def listens_on(self, host: str, port: int) -> None:
        """The address for clients, which spans show from now on."""
        self._listen = host, port

    def report(self, exchange: Exchange, ended: Ended) -> None:
        """A command has ended. Raises nothing."""
        try:
            self._report(exchange, ended)
        except Exception as error:  # noqa: BLE001 - reported; the command has its reply already
            self._on_error(error)
        if ended.seconds >= self._slow.seconds:
            self._slow.report(exchange, ended)

    def trace_of(self, exchange: Exchange) -> CommandTrace:
        """The span of a command, which starts with the first call."""
        times = exchange.times()
        trace = times.trace
        if trace is None:
            name, offset_ns = name_of(exchange), clock_offset_ns()
            command = parsed_or_none(exchange) if may_carry_trace(exchange.message.raw) else None
            carried = {} if command is None else carried_trace(command)
            started_ns = round(exchange.started_seconds * 1e9) + offset_ns
            span = self._tracer.command(_spoken(name), started_ns, carried)
            trace = times.trace = CommandTrace(span, offset_ns)
        return trace

    def _report(self, exchange: Exchange, ended: Ended) -> None:
        if name_of(exchange) in GREETS:
            return
        trace = self.trace_of(exchange)
        if trace.has_ended:
            return
        trace.has_ended = True
        if not trace.span.is_recorded:
            return
        ended_seconds = exchange.started_seconds + ended.seconds
        is_insert = is_committed_here(exchange)
        self._add_parts(exchange, trace, ended_seconds, is_insert=is_insert)
        if is_insert:
            self._add_commits(exchange, trace, ended)
        command = parsed_or_none(exchange)
        attributes = {**SYSTEM, **_of_command(command), "tsproxy.way": way_of(exchange), **self._of_client(exchange)}
        for part, seconds in spent_by(exchange, ended).items():
            attributes[f"tsproxy.{part}_ms"] = round(seconds * 1000, 3)
        error = _error(ended)
        if ended.code > 0:
            attributes["db.response.status_code"] = str(ended.code)
        trace.span.end(_span_name(command, name_of(exchange)), trace.at_ns(ended_seconds), attributes, error)

    def _add_parts(self, exchange: Exchange, trace: CommandTrace, ended_seconds: float, *, is_insert: bool) -> None:
        times, backend = exchange.known_times, backend_of(exchange.session.upstream.address)
        parts = [] if times is None or times.parts is None else list(times.parts)
        sent_seconds = exchange.sent_seconds
        if not is_insert and sent_seconds < NOT_SENT:
            since_seconds = max(sent_seconds, exchange.started_seconds + exchange.turn_seconds)
            parts.append(Part(False, since_seconds, ended_seconds))
        for part in parts:
            started_ns, ended_ns = trace.at_ns(part.started_seconds), trace.at_ns(part.ended_seconds)
            if part.is_rewriting:
                trace.span.child("rewrite", Kind.INTERNAL, started_ns, ended_ns, {})
                continue
            attributes = dict(backend)
            if part.operation:
                attributes["db.operation.name"] = part.operation
            if part.target:
                attributes["db.collection.name"] = printable(part.target)
            trace.span.child("backend", Kind.CLIENT, started_ns, ended_ns, attributes)

    def _add_commits(self, exchange: Exchange, trace: CommandTrace, ended: Ended) -> None:
        acknowledgement = ended.acknowledgement
        for commit in trace.commits:
            sent_seconds, answered_seconds = commit.sent_seconds, commit.answered_seconds
            if not sent_seconds and acknowledgement is not None:
                # The reply goes out while its last commit ends.
                sent_seconds, answered_seconds = acknowledgement.sent_at_seconds, acknowledgement.answered_at_seconds
            if not sent_seconds:
                # It failed before the backend has answered.
                sent_seconds = answered_seconds = exchange.started_seconds + ended.seconds
            started_ns = trace.at_ns(max(sent_seconds, exchange.started_seconds))
            trace.span.child(
                "commit", Kind.INTERNAL, started_ns, max(trace.at_ns(answered_seconds), started_ns), {}, (commit.span,)
            )

    def _of_client(self, exchange: Exchange) -> dict[str, Any]:
        session = exchange.session.home or exchange.session
        client: dict[str, Any] = {"client.address": session.peer} if session.peer else {}
        if self._listen is not None:
            client["server.address"], client["server.port"] = self._listen
        return client


def backend_of(address: str) -> dict[str, Any]:
    """The attributes of a span that waits for the server with this address; ``""`` if that is not known."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return dict(SYSTEM)
    return {**SYSTEM, "server.address": host.strip("[]"), "server.port": int(port)}


def _spoken(name: str) -> str:
    return name if name in TABLE else OTHER


def _span_name(command: Command | None, name: str) -> str:
    """The name of the command and its collection, or else its database, as the conventions for databases say."""
    if command is None:
        return _spoken(name)
    namespace = namespace_of(command)
    return f"{_spoken(name)} {printable(namespace.collection or namespace.database)}".rstrip()


def _of_command(command: Command | None) -> dict[str, Any]:
    if command is None:
        return {}
    namespace, statements = namespace_of(command), documents_in(command)
    attributes: dict[str, Any] = {"db.operation.name": printable(command.name)}
    if namespace.database:
        attributes["db.namespace"] = printable(namespace.database)
    if namespace.collection:
        attributes["db.collection.name"] = printable(namespace.collection)
    if statements is not None and statements > 1:
        attributes["db.operation.batch.size"] = statements
    return attributes


def _error(ended: Ended) -> str:
    """The kind of error, as ``error.type``; ``""`` if there is none."""
    if ended.disconnected:
        return "disconnected"
    if ended.closed:
        return "closed"
    if ended.code > 0:
        return code_name(ended.code)
    return "unknown" if ended.code < 0 else ""
