"""Sends bulk writes of the proxy's own account, and reads the outcome from their replies.

Every writer waits for such a reply, so the usual one is recognised by its bytes.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from catalog.commit.statements import TRANSACTION_TOO_OLD
from catalog.errors import CommandError
from catalog.namespaces import Namespace
from catalog.ports import NO_FIELDS, Acknowledgement, Applied, BulkOutcome, Rejected, Unknown, WriteConcern
from proxy.backend.replication_wait import Attempt, ReplicationWait
from proxy.backend.service import ServicePool
from proxy.backend.service_connection import LostAfterSending, NotSent
from proxy.backend.write_concern_waits import ACKNOWLEDGED_FIELDS, Send, WriteConcernWaits, decoded
from proxy.request.own_steps import client_message

UNDECIDED_CODES: Final = frozenset({6, 7, 50, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436})
"""Error codes of a member that steps down or shuts down; it may have applied a part of the command."""

OTHER_UUID_CODES: Final = frozenset({26, 361})
"""Error codes for a collection that was dropped, or dropped and created again, since the command was prepared."""

_N: Final = b"\x10n\0"
_N_AT: Final = 4
_COUNT_AT: Final = _N_AT + len(_N)
_MODIFIED: Final = b"\x10nModified\0"
_MODIFIED_BYTES: Final = len(_MODIFIED) + 4
_OK: Final = b"\x01ok\0" + struct.pack("<d", 1.0) + b"\0"

_PLAIN_FIELDS: Final = frozenset({"index", "code", "errmsg"})
_AS_IT_IS: Final = Attempt.AS_IT_IS
_NO_ERRORS: Final[Mapping[int, CommandError]] = {}
RESEND_PAUSE_SECONDS: Final = 0.1
"""Pause before a write whose outcome is unknown is sent again."""


async def bulk_write(
    pool: ServicePool,
    waits: WriteConcernWaits | None,
    write_concern: WriteConcern,
    confirmed_in: Namespace,
    send: Send,
    message_of: Callable[[Mapping[str, Any]], str] | None = None,
) -> BulkOutcome:
    """Send a bulk write over ``pool`` with ``send``; its outcome.

    Where there are ``waits``, the write concern is waited for in ``confirmed_in``. ``message_of``: see ``outcome_of``.
    """
    wait: ReplicationWait | None = None
    sent_at_seconds = time.perf_counter()
    try:
        if waits is None:
            outcome = outcome_of_reply(await send(_AS_IT_IS), sent_at_seconds, message_of)
        else:
            said, wait = await waits.write(write_concern, confirmed_in, send)
            outcome = outcome_of(said, wait, sent_at_seconds, message_of)
    # Each has a name of its own: in a compiled coroutine, one name has the type of its first use.
    except NotSent as not_sent:
        return Rejected(not_sent)
    except LostAfterSending as lost:
        await asyncio.sleep(RESEND_PAUSE_SECONDS)
        return Unknown(lost)
    except CommandError as refused:
        # The proxy's account could not authenticate.
        return Rejected(refused)
    if isinstance(outcome, Applied):
        pool.family.times.hear(outcome.acknowledgement.fields)
    elif isinstance(outcome, Unknown):
        pool.forget_primary()
        await asyncio.sleep(RESEND_PAUSE_SECONDS)
    return outcome


def outcome_of_reply(
    reply: bytes, sent_at_seconds: float, message_of: Callable[[Mapping[str, Any]], str] | None = None
) -> BulkOutcome:
    """The outcome that a raw reply reports, which has just arrived; arguments as those of ``outcome_of``."""
    if not is_plain_success(reply):
        return outcome_of(decoded(reply), None, sent_at_seconds, message_of)
    acknowledgement = Acknowledgement(None, NO_FIELDS, None, sent_at_seconds, time.perf_counter())
    return Applied(int.from_bytes(reply[_COUNT_AT : _COUNT_AT + 4], "little"), _NO_ERRORS, acknowledgement)


def is_plain_success(reply: bytes) -> bool:
    """Whether this is the usual reply of a standalone to a bulk write: success without errors."""
    ok_at = len(reply) - len(_OK)
    if not reply.endswith(_OK) or not reply.startswith(_N, _N_AT):
        return False
    after_count = _COUNT_AT + 4
    return ok_at == after_count or (ok_at == after_count + _MODIFIED_BYTES and reply.startswith(_MODIFIED, after_count))


def outcome_of(
    reply: Mapping[str, Any],
    wait: ReplicationWait | None = None,
    sent_at_seconds: float = 0.0,
    message_of: Callable[[Mapping[str, Any]], str] | None = None,
) -> BulkOutcome:
    """The outcome that the reply to a bulk write, which has just arrived, reports.

    With ``wait``, the write concern is still waited for. ``sent_at_seconds``: see ``Acknowledgement``.
    ``message_of``: the text of the error of one document for its client, who also gets what else the server says of it.
    """
    if not reply.get("ok"):
        code = int(reply.get("code", 1))
        error = CommandError(
            code,
            # This one tells the number; no client gets it.
            str(reply.get("errmsg", "")) if code == TRANSACTION_TOO_OLD else _client_message(reply),
            labels=tuple(reply.get("errorLabels", ())),
            fails_command=True,
            name=reply.get("codeName"),
        )
        return Unknown(error) if error.code in UNDECIDED_CODES else Rejected(error)
    errors = {int(entry["index"]): _error_of(entry, message_of) for entry in reply.get("writeErrors", ())}
    for error in errors.values():
        if error.code in OTHER_UUID_CODES:
            # The error concerns the whole command; documents written before it were dropped with the collection.
            return Rejected(error)
        if error.code in UNDECIDED_CODES:
            return Unknown(error)
    concern = reply.get("writeConcernError") if wait is None else None
    if concern is not None and concern.get("code") in UNDECIDED_CODES:
        # The primary stepped down before the write was replicated, so the write may be rolled back.
        return Unknown(CommandError(int(concern["code"]), _client_message(concern), fails_command=True))
    answered_at_seconds = time.perf_counter()
    if wait is not None:
        wait.sent_at_seconds, wait.answered_at_seconds = sent_at_seconds, answered_at_seconds
    fields: Mapping[str, Any] = {}
    if len(reply) > 3 or "writeConcernError" in reply:
        fields = {name: reply[name] for name in ACKNOWLEDGED_FIELDS if name in reply}
    acknowledgement = Acknowledgement(concern, fields, wait, sent_at_seconds, answered_at_seconds)
    return Applied(int(reply["n"]), errors, acknowledgement)


def _error_of(entry: Mapping[str, Any], message_of: Callable[[Mapping[str, Any]], str] | None) -> CommandError:
    """The error of one document. Its further fields hold values, so they are for the client of this document only."""
    code = int(entry["code"])
    if message_of is None:
        return CommandError(code, _client_message(entry))
    details = {name: value for name, value in entry.items() if name not in _PLAIN_FIELDS}
    return CommandError(code, message_of(entry), details=details)


def _client_message(error: Mapping[str, Any]) -> str:
    """The error message for clients, without values: a commit contains measurements of many clients."""
    return client_message(int(error.get("code", 1)), str(error.get("errmsg", "")), holds_data=True)
