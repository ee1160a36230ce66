"""Waits for the write concern of a command with several steps once, after the last of them.

The steps themselves use ``w: 1``, also if the client sends no write concern and the default of the cluster applies. The
wait occupies no place at the backend, and ends when the client disconnects.

A write concern with anything unusual in it goes to the backend before the first step, because a command that finds
nothing to write would otherwise be accepted with any. If the backend accepts it, each step waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from catalog.bson.codec import encode
from catalog.errors import CommandError
from catalog.namespaces import Namespace
from catalog.ports import Acknowledgement, Confirmation
from catalog.queries import NO_DOCUMENT
from proxy.request.command_table import SEEKING_WRITES
from proxy.request.field_types import plain_write_concern
from rewrite.bucket_writes import is_unacknowledged

LOOK_SECONDS: Final = 0.5
"""Interval between checks whether a waiting client has disconnected."""


class Replication(Protocol):
    """Waits for the write concerns of writes that are already stored."""

    def of_steps(self, concern: bytes) -> Mapping[str, Any] | None:
        """The write concern of the steps for the client's (raw) one; ``None`` if they have to wait themselves."""
        ...

    def after(
        self, concern: bytes, namespace: Namespace, reply: Mapping[str, Any], since_seconds: float
    ) -> Confirmation:
        """A wait for everything that the primary of ``reply`` has written; time counts from ``since_seconds``."""
        ...


class FinalWait:
    """The wait of one command."""

    def __init__(self, replication: Replication | None, body: Mapping[str, Any], namespace: Namespace) -> None:
        """``replication``: ``None`` without a replica set; ``body``: the client's, whose write concern is an object."""
        concern = body.get("writeConcern", {})
        self._concern = encode(concern)
        self._replication = replication
        self._namespace = namespace
        self._since_seconds = asyncio.get_running_loop().time()
        self._first: Mapping[str, Any] | None = None
        self._unusual = concern if plain_write_concern(self._concern) is None else None
        self._is_unacknowledged = is_unacknowledged(concern)
        self._of_steps: Mapping[str, Any] | None = None
        if replication is not None and self._unusual is None:
            # Without a write concern of their own, steps would wait for the default of the cluster.
            self._of_steps = {"w": 1} if self._is_unacknowledged else replication.of_steps(self._concern)

    @property
    def probe(self) -> Mapping[str, Any] | None:
        """A delete of nothing, whose reply shows the primary before the first write; ``None`` if not needed.

        With an unusual write concern, its reply shows whether the backend accepts that.
        """
        if self._unusual is None and (self._of_steps is None or self._is_unacknowledged):
            return None
        nothing = {"q": NO_DOCUMENT, "limit": 1}
        return {
            "delete": self._namespace.buckets.collection,
            "deletes": [nothing],
            "writeConcern": self._of_steps if self._unusual is None else self._unusual,
        }

    def sent(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A step with the write concern with which it is sent."""
        if self._of_steps is None or next(iter(body)) not in SEEKING_WRITES:
            return body
        return {**body, "writeConcern": self._of_steps}

    def began(self, reply: Mapping[str, Any]) -> bool:
        """Record the reply to ``probe``; false if it is the reply to the command, which is refused."""
        if self._unusual is not None:
            return bool(reply.get("ok"))
        if reply.get("ok"):
            self._first = reply
        return True

    async def finish(self, reply: Mapping[str, Any], is_gone: Callable[[], bool]) -> Mapping[str, Any]:
        """Wait; returns the client's reply with the result of its write concern. Raises ``CommandError``."""
        if self._replication is None or self._first is None or not reply.get("ok"):
            return reply
        known: asyncio.Future[Acknowledgement | CommandError] = asyncio.get_running_loop().create_future()
        confirmation = self._replication.after(self._concern, self._namespace.buckets, self._first, self._since_seconds)

        def tell(outcome: Acknowledgement | CommandError) -> None:
            if not known.done():
                known.set_result(outcome)

        confirmation.when_known(tell, is_gone)
        while not known.done() and not is_gone():
            await asyncio.wait({known}, timeout=LOOK_SECONDS)
        if not known.done():
            return reply
        outcome = known.result()
        if isinstance(outcome, CommandError):
            # The client's own connection is intact, so it gets an error that drivers retry, as at a step-down.
            raise CommandError(outcome.code, outcome.message)
        if outcome.write_concern_error is None:
            return reply
        fields: dict[str, Any] = dict(reply)
        last: dict[str, Any] = {
            name: fields.pop(name) for name in ("ok", "$clusterTime", "operationTime") if name in fields
        }
        return {**fields, "writeConcernError": outcome.write_concern_error, **last}
