"""The ``insert`` command on a virtual collection, validated as a server does (W90-W106)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from catalog.errors import CommandError
from proxy.command import Command

MAX_DOCUMENTS = 100_000

KNOWN_FIELDS = frozenset(
    {
        "insert",
        "documents",
        "ordered",
        "bypassDocumentValidation",
        "comment",
        "writeConcern",
        "maxTimeMS",
        "stmtId",
        "stmtIds",
        "lsid",
        "txnNumber",
        "autocommit",
        "startTransaction",
        "readConcern",
        "collectionUUID",
        "let",
        "apiVersion",
        "apiStrict",
        "apiDeprecationErrors",
        "encryptionInformation",
        "databaseVersion",
        "shardVersion",
        "isTimeseriesNamespace",
        "allowImplicitCollectionCreation",
        "maxTimeMSOpOnly",
        "mayBypassWriteBlocking",
    }
)


@dataclass(frozen=True, slots=True)
class InsertCommand:
    """What an ``insert`` asks for. ``statement_ids`` is ``None`` unless the write is retryable."""

    documents: Sequence[bytes]
    ordered: bool
    write_concern: bytes
    session: bytes
    txn_number: int | None
    statement_ids: Sequence[int] | None
    expects_reply: bool
    size_bytes: int


def parse_insert(command: Command) -> InsertCommand:
    """Raises ``CommandError`` for what a server refuses as a whole (W94, W100, W102)."""
    raise NotImplementedError


_ = (CommandError, Any)
