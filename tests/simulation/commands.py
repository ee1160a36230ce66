"""The commands that join parts, on the simulated server: the real ``PartStore`` speaks to it over a lossy line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bson.int64 import Int64

from catalog.bson.codec import decode, encode
from catalog.errors import BackendUnavailable
from catalog.parts import bucket_key
from tests.simulation.auditor import rows_of
from tests.simulation.server import Server, Stored
from tests.support.update_expressions import at, matches, same

_SESSION_ENDED = {"ok": 0.0, "code": 251, "errmsg": "Given transaction number does not match any in-progress"}
_CONFLICT = {"ok": 0.0, "code": 112, "errmsg": "WriteConflict"}

Reply = dict[str, Any]


class _Transaction:
    """What it read and what it is going to change; others notice nothing until it is committed."""

    def __init__(self, stored: Stored, snapshot: Mapping[bytes, bytes]) -> None:
        self.stored = stored
        self.snapshot = snapshot
        self.deleted: list[bytes] = []
        self.inserted: dict[bytes, dict[str, Any]] = {}


class CommandLine:
    """``proxy.backend.service.ServicePool`` of one process, as far as ``PartStore`` needs it."""

    def __init__(self, server: Server, *, allowed: bool, may_be_late: bool) -> None:
        self._server = server
        self._allowed = allowed
        self._may_be_late = may_be_late
        self._transactions: dict[tuple[bytes, int], _Transaction] = {}

    def forget_primary(self) -> None:
        """There is only one server."""

    async def request(
        self, body: bytes, deadline_seconds: float, identifier: str = "", documents: Sequence[bytes] = ()
    ) -> bytes:
        """Refused, lost, executed late, or answered."""
        server, chance, faults = self._server, self._server.chance, self._server.faults
        command = decode(body)
        if identifier:
            command[identifier] = [decode(each) for each in documents]
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < faults.refused:
            raise BackendUnavailable("connection refused")
        if chance.random() < faults.lost_before:
            raise BackendUnavailable("connection reset")
        stalled_seconds = server.stalled_until - asyncio.get_running_loop().time()
        if stalled_seconds > 0:
            await asyncio.sleep(min(stalled_seconds, max(deadline_seconds - asyncio.get_running_loop().time(), 0)))
            raise BackendUnavailable("no answer in time")
        if self._may_be_late and chance.random() < faults.late:
            server.hand_over(lambda: (self._execute(command), None)[1], chance.choice((0.05, 1, 10, 50)))
            raise BackendUnavailable("no answer in time")
        reply = encode(self._execute(command))
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < faults.lost_after:
            raise BackendUnavailable("connection reset")
        return reply

    def _execute(self, command: Mapping[str, Any]) -> Reply:
        if not self._allowed:
            return {"ok": 0.0, "code": 13, "errmsg": "not authorized"}
        name = next(iter(command))
        execute: Callable[[Mapping[str, Any]], Reply] = getattr(self, f"_{name}")
        return execute(command)

    # --- on their own --------------------------------------------------------------------------------------

    def _update(self, command: Mapping[str, Any]) -> Reply:
        """Close documents."""
        changed = 0
        for statement in command["updates"]:
            assert statement["u"] == {"$set": {"control.closed": True}}
            for document in self._matching(statement["q"]):
                document["control"]["closed"] = True
                changed += 1
                if not statement.get("multi"):
                    break
        return {"n": changed, "ok": 1.0}

    def _find(self, command: Mapping[str, Any]) -> Reply:
        found = self._matching(command["filter"])[: command.get("limit")]
        if command.get("startTransaction") and (stored := self._server.current) is not None:
            snapshot = {identity: encode(each) for identity, each in stored.documents.items()}
            self._transactions[_transaction_of(command)] = _Transaction(stored, snapshot)
        elif "txnNumber" in command:
            if (transaction := self._transactions.get(_transaction_of(command))) is None:
                return _SESSION_ENDED
            ids = _ids_of(command["filter"], transaction.snapshot)
            documents = (decode(transaction.snapshot[each]) for each in ids)
            found = [each for each in documents if _fits(each, command["filter"])][: command.get("limit")]
        return {"cursor": {"id": Int64(0), "ns": "db.system.buckets.c", "firstBatch": found}, "ok": 1.0}

    def _applyOps(self, command: Mapping[str, Any]) -> Reply:
        stored = self._of_incarnation(command["applyOps"][0].get("ui"))
        if stored is None:
            return {"ok": 0.0, "code": 26, "errmsg": "NamespaceNotFound"}
        for condition in command.get("preCondition", ()):
            first = next(iter(self._matching(condition["q"])), {})
            if not matches(first, condition["res"]):
                return {"ok": 0.0, "code": 2, "errmsg": "preCondition failed"}
        operations = command["applyOps"]
        assert command["alwaysUpsert"] is False
        for each in operations:
            if each["op"] == "u" and each["o2"]["_id"].binary not in stored.documents:
                return {"ok": 0.0, "code": 9, "errmsg": "Update of non-mod failed"}
        deleted = [each["o"]["_id"].binary for each in operations if each["op"] == "d"]
        diffs = [(each["o2"]["_id"].binary, each["o"]["diff"]) for each in operations if each["op"] == "u"]
        changed = {identity: diff["u"] for identity, diff in diffs if "u" in diff}
        assert all(set(contents) == {"control", "data"} for contents in changed.values())
        joined = {each: {**stored.documents[each], **contents} for each, contents in changed.items()}
        self._replace(stored, [*deleted, *joined], joined)
        return {"ok": 1.0}

    def _matching(self, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The stored documents themselves, by id."""
        stored = self._server.current
        documents = {} if stored is None else stored.documents
        return [documents[each] for each in _ids_of(query, documents) if _fits(documents[each], query)]

    def _of_incarnation(self, uuid: bytes | None) -> Stored | None:
        stored = self._server.current
        return stored if stored is not None and (uuid is None or bytes(uuid) == stored.collection.uuid) else None

    def _replace(self, stored: Stored, deleted: Sequence[bytes], inserted: Mapping[bytes, dict[str, Any]]) -> None:
        """The rows of those that go are in one that comes."""
        documents = stored.documents
        gone = {each: documents.pop(each) for each in sorted(deleted) if each in documents}
        for identity, joined in inserted.items():
            place = {row["_id"]: number for number, row in enumerate(rows_of(joined))}
            parts = {one: each for one, each in gone.items() if rows_of(each)[0]["_id"] in place}
            in_order = sorted(parts, key=lambda one: place[rows_of(parts[one])[0]["_id"]])
            own = [one for one in in_order if bucket_key(one) == bucket_key(identity)]
            assert own == sorted(own), "parts in another order"
            for one in parts:
                del gone[one]
            self._server.auditor.joined([parts[one] for one in in_order], joined)
            documents[identity] = joined
            self._server.joins += 1
        assert not gone, "documents that went without another one"

    # --- in a transaction ----------------------------------------------------------------------------------

    def _delete(self, command: Mapping[str, Any]) -> Reply:
        transaction = self._transactions.get(_transaction_of(command))
        if transaction is None:
            return _SESSION_ENDED
        for statement in command["deletes"]:
            assert list(statement["q"]) == ["_id"]
            transaction.deleted += _ids_of(statement["q"], transaction.snapshot)
        if not self._is_unchanged(transaction):
            return self._conflict(command)
        return {"n": len(transaction.deleted), "ok": 1.0}

    def _insert(self, command: Mapping[str, Any]) -> Reply:
        transaction = self._transactions.get(_transaction_of(command))
        if transaction is None:
            return _SESSION_ENDED
        for document in command["documents"]:
            identity = document["_id"].binary
            assert identity not in transaction.snapshot or identity in transaction.deleted
            transaction.inserted[identity] = document
        return {"n": len(command["documents"]), "ok": 1.0}

    def _commitTransaction(self, command: Mapping[str, Any]) -> Reply:
        transaction = self._transactions.get(_transaction_of(command))
        if transaction is None:
            return _SESSION_ENDED
        if not self._is_unchanged(transaction) or transaction.stored is not self._server.current:
            return self._conflict(command)
        del self._transactions[_transaction_of(command)]
        self._replace(transaction.stored, transaction.deleted, transaction.inserted)
        return {"ok": 1.0}

    def _abortTransaction(self, command: Mapping[str, Any]) -> Reply:
        return {"ok": 1.0} if self._transactions.pop(_transaction_of(command), None) else _SESSION_ENDED

    def _conflict(self, command: Mapping[str, Any]) -> Reply:
        self._transactions.pop(_transaction_of(command), None)
        return _CONFLICT

    def _is_unchanged(self, transaction: _Transaction) -> bool:
        """Others may write until the end; then this one fails, as if it had met their writes at once."""
        documents = transaction.stored.documents
        return all(
            each in documents and encode(documents[each]) == transaction.snapshot[each] for each in transaction.deleted
        )


def _transaction_of(command: Mapping[str, Any]) -> tuple[bytes, int]:
    return bytes(command["lsid"]["id"]), int(command["txnNumber"])


def _ids_of(query: Mapping[str, Any], documents: Iterable[bytes]) -> list[bytes]:
    """The ids among these that the query names, by one id, a list of them, or a range; in order."""
    wanted = query.get("_id")
    if wanted is None:
        return sorted(documents)
    if not isinstance(wanted, Mapping):
        return [each for each in documents if each == wanted.binary]
    assert set(wanted) - {"$in"} == {"$gte", "$lte"}
    least, most = wanted["$gte"].binary, wanted["$lte"].binary
    named = {each.binary for each in wanted["$in"]} if "$in" in wanted else None
    return sorted(each for each in documents if least <= each <= most and (named is None or each in named))


def _fits(document: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    """Whether the rest of the query fits, too."""
    conditions = {name: condition for name, condition in query.items() if name != "_id"}
    if conditions.get("control.closed") == {"$ne": True}:
        if same(at(document, "control.closed"), True):
            return False
        del conditions["control.closed"]
    return matches(document, conditions)
