"""The outcomes of an attempt to execute a command, and the pure function that says what follows.

The room that executes a command (relay, reads, inserts) passes the outcome to ``Exchange.end``. ``what_follows``
decides, and ``proxy.clients.dispatch`` acts on it. Without an outcome, an exchange is finished by replies to inserts,
which have the acknowledgement of their commit, by reads whose reply is passed on under another cursor's name, and by
who closes the client's connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias, assert_never

from catalog.bson.raw import INT32, fields_of, unpack_int32
from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import VirtualCollection
from proxy.request.command import Command
from proxy.request.command_table import HAS_PIPELINE, REPEATABLE
from proxy.upstream.connection import UpstreamLost
from proxy.upstream.not_primary import NOT_PRIMARY_CODES, not_primary, says_ok

CURSOR_NOT_FOUND: Final = 43
SERVER_CURSOR_TIMEOUT_SECONDS: Final[float] = 600.0
"""Time without use after which a server closes a cursor."""

_CODE: Final = b"\x10code\0"
_INT32: Final = bytes([INT32])


@dataclass(frozen=True, slots=True)
class Replied:
    """There is a reply, which may have ``ok: 0``.

    ``document``: the raw reply document, ``None`` if the client wants none; ``raw``: the backend's whole message, if
    the client gets it unchanged.
    """

    document: bytes | None
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class Streamed:
    """The whole reply was streamed to the client; ``document`` is the reply without its batch."""

    document: bytes


@dataclass(frozen=True, slots=True)
class Deposed:
    """The server replied that it is not the primary, or is stepping down."""

    document: bytes
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class CursorMissing:
    """The server replied that it does not have the cursor of a ``getMore``."""

    document: bytes
    raw: bytes | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The proxy refuses the command, or the backend has refused a step of the proxy's own account."""

    error: CommandError


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The client's own connection to the backend cannot be opened, or has got an invalid reply."""

    error: BackendUnavailable


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection ended during the command; ``partly_sent``: the client has got a part of the reply."""

    partly_sent: bool = False


@dataclass(frozen=True, slots=True)
class NeedsTranslation:
    """A read that was sent in one step needs ``proxy.reads.translate`` after all; the client has got nothing."""

    collection: VirtualCollection | None


@dataclass(frozen=True, slots=True)
class NotTranslatable:
    """The command must be relayed unchanged."""

    collection: VirtualCollection | None


@dataclass(frozen=True, slots=True)
class Unexpected:
    """An internal error. ``in_doubt``: the command's result, or the connection's identity, is unknown."""

    error: Exception
    in_doubt: bool = False


Answered: TypeAlias = Replied | Deposed | CursorMissing
Outcome: TypeAlias = (
    Answered | Streamed | Refused | Unreachable | Lost | NeedsTranslation | NotTranslatable | Unexpected
)

MAY_GO_ELSEWHERE: Final = (CursorMissing, Deposed, Lost, Unreachable)
"""The outcomes for which the situation matters, in addition to the login."""


class Primary(Enum):
    """The state of the primary to which the command was sent (``proxy.relay.failover``)."""

    UNASKED = auto()
    STAYS = auto()
    """It is still the primary, so the error has another cause and goes to the client."""
    MOVED = auto()
    """The command may be sent again over the session's upstream."""
    MOVED_FROM_LOGIN = auto()
    """There is a new primary, and the client has to log in there."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What decides, in addition to the outcome.

    ``repeatable``: the command may be sent again, and there are other servers. ``at_member``: it was sent to another
    member than the primary. ``may_seek``: its cursor may be at a former primary. ``has_login``: the client has
    authenticated.
    """

    repeatable: bool = False
    at_member: bool = False
    may_seek: bool = False
    has_login: bool = False
    primary: Primary = Primary.UNASKED


class Next(Enum):
    """What follows."""

    REPLY = auto()
    """The client gets the reply."""
    FINISH = auto()
    """The command ends without a further reply."""
    REFUSE = auto()
    """The client gets the error."""
    REFUSE_RETRYABLY = auto()
    """The client gets the error with the labels that make drivers retry."""
    CLOSE = auto()
    """The client's connection is closed, as without a proxy; a driver opens another."""
    REAUTHENTICATE = auto()
    """The client gets an error that makes it authenticate again, and its connection is closed."""
    FIND_PRIMARY = auto()
    """Ask whether the primary has moved, then decide again."""
    BEGIN_AGAIN = auto()
    """The command is sent again to the next primary."""
    LEAVE_MEMBER = auto()
    """The command is sent to another member, or to the primary."""
    SEEK_CURSOR = auto()
    """The command is sent to a former primary; if there is no other, decide again."""
    TRANSLATE = auto()
    """The command is rewritten by ``proxy.reads.translate``."""
    RELAY = auto()
    """The command is relayed as it came."""
    REPORT = auto()
    """The error is logged, and the client gets a reference to it."""
    REPORT_AND_CLOSE = auto()


def what_follows(outcome: Outcome, situation: Situation) -> Next:
    """What to do next about a command whose attempt has this outcome."""
    match outcome:
        case Replied():
            return Next.REPLY
        case Streamed():
            return Next.FINISH
        case CursorMissing():
            return Next.SEEK_CURSOR if situation.may_seek else Next.REPLY
        case Deposed():
            return _elsewhere_or(Next.REPLY, situation)
        case Lost(partly_sent=partly_sent):
            return Next.CLOSE if partly_sent else _elsewhere_or(Next.CLOSE, situation)
        case Unreachable():
            # Connecting to the primary is retried before this; connecting to another member is not.
            if situation.repeatable and situation.at_member:
                return Next.LEAVE_MEMBER
            # A login ends with its connection. Drivers open another connection and log in again.
            return Next.CLOSE if situation.has_login else Next.REFUSE_RETRYABLY
        case Refused(error=error):
            retryable = isinstance(error, BackendUnavailable) or error.code in NOT_PRIMARY_CODES
            return Next.REFUSE_RETRYABLY if retryable else Next.REFUSE
        case NeedsTranslation():
            return Next.TRANSLATE
        case NotTranslatable():
            return Next.RELAY
        case Unexpected(in_doubt=in_doubt):
            return Next.REPORT_AND_CLOSE if in_doubt else Next.REPORT
    assert_never(outcome)


def _elsewhere_or(otherwise: Next, situation: Situation) -> Next:
    if not situation.repeatable:
        return otherwise
    if situation.at_member:
        return Next.LEAVE_MEMBER
    match situation.primary:
        case Primary.UNASKED:
            return Next.FIND_PRIMARY
        case Primary.STAYS:
            return otherwise
        case Primary.MOVED:
            return Next.BEGIN_AGAIN
        case Primary.MOVED_FROM_LOGIN:
            return Next.REAUTHENTICATE
    assert_never(situation.primary)


def of_error(error: Exception) -> Outcome:
    """The outcome of an attempt that raised ``error``."""
    match error:
        case UpstreamLost():
            return Lost()
        case BackendUnavailable():
            return Unreachable(error)
        case CommandError():
            return Refused(error)
        case _:
            return Unexpected(error)


def of_reply(document: bytes, command: str, raw: bytes | None = None) -> Answered:
    """The outcome of an attempt that got this reply; ``command`` is its name. Raises ``MalformedBSON``."""
    if _CODE not in document:
        return Replied(document, raw)
    if command == "getMore":
        return CursorMissing(document, raw) if _misses_cursor(document) else Replied(document, raw)
    return Replied(document, raw) if not_primary(document) is None else Deposed(document, raw)


def _misses_cursor(document: bytes) -> bool:
    fields = fields_of(document)
    code = fields.get(b"code", b"")
    return code[:1] == _INT32 and bool(unpack_int32(code, 1)[0] == CURSOR_NOT_FOUND) and not says_ok(fields)


def may_be_sent_again(command: Command | None) -> bool:
    """Whether executing a command twice is harmless, as a mongos decides it, too.

    Retryable writes have a number under which the backend records their execution; reads change nothing.
    """
    if command is None or command.in_transaction or not command.expects_reply or command.exhaust_allowed:
        return False
    return only_reads(command) if command.name in REPEATABLE else command.has_txn_number


def only_reads(command: Command) -> bool:
    """Whether a command changes nothing; a transaction that it may begin counts as a change."""
    if command.name not in REPEATABLE or command.in_transaction:
        return False
    return not stores_result(command)


def stores_result(command: Command) -> bool:
    """Whether the command has a pipeline that may end in ``$out`` or ``$merge``."""
    return command.name in HAS_PIPELINE and (b"$out\0" in command.body or b"$merge\0" in command.body)
