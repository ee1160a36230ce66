"""What proxies tell one another, as bytes: frames, questions about statements and the answers, and holds of readers.

A frame is its length, kind and content, and a code that proves who sent it (``proxy.peers.handshake``). A question has
sessions with a transaction number each; an answer has one entry for each of them, in their order. A hold
(``proxy.peers.holding``) has a number, which its answer and its end repeat, and the name of a database. A ping has the
number of places for buckets that its sender has used. Messages about buckets that rest
(``catalog.background.gathering``) have the ids of their documents. What has changed: see
``proxy.peers.change``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from bson.errors import InvalidBSON

from catalog.background.absorbing import Order
from catalog.background.families import MOST_OF_A_SERIES
from catalog.bounded import BoundedCache
from catalog.bson.codec import decode, encode
from catalog.buckets.resting import Given, Rested
from catalog.commit.tenure import SessionKey
from catalog.identity import NOBODY, Identity, identity_of

CODE_BYTES: Final = 16
"""Length of the code that proves the sender of a frame."""
LONGEST_GREETING_BYTES: Final = 1024
"""Limit of a frame before both sides have proved who they are."""
LONGEST_BYTES: Final = 4 * 1024 * 1024
"""Limit of any other frame."""
MOST_QUESTIONS: Final = 1_000
"""Limit of one question frame."""
LONGEST_SESSION_BYTES: Final = 4_000
"""Limit of a session's id and users together."""
MOST_RUNS: Final = 100
"""Maximum number of runs of statement ids in an answer; the statements of a transaction with more are looked up."""

_HEAD: Final = struct.Struct("<IB")
"""Length of the frame, kind."""
_QUESTION: Final = struct.Struct("<qHH")
"""Transaction number, lengths of the session's id and of its users."""
_KNOWN: Final = struct.Struct("<BHH")
"""Flags (``is_native``, ``is_sought``), number of written and of lost runs."""
_RUN: Final = struct.Struct("<iI")
"""First statement id of the run, and the one after its last without its sign: the largest is followed by another."""
_COUNT: Final = struct.Struct("<I")
"""Number of questions."""
_HOLD: Final = struct.Struct("<I")
"""Number of the hold, or of the request to give buckets up."""
_PING: Final = struct.Struct("<I")
"""Number of places."""
_MOST_PLACES: Final = (1 << 32) - 1
_HELD: Final = struct.Struct("<I?")
"""Number of the hold, and whether it is granted."""
_RESTED: Final = struct.Struct("<16s16s12sII")
"""The fields of ``Rested``: collection, series, id of the document, rows, size in bytes."""
_ID_BYTES: Final = 12
_GIVEN: Final = struct.Struct("<12sI")
"""Id of the document, number of rows."""
_ABSORB: Final = struct.Struct("<12sH")
"""Id of the document that absorbs, number of documents to absorb."""
_MOST: Final = (1 << 32) - 1


class Kind(IntEnum):
    """The kinds of frames."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    ASK = 5
    ANSWER = 6
    PING = 7
    HOLD = 8
    HELD = 9
    RELEASE = 10
    RESTED = 11
    GIVE_UP = 12
    GIVEN_UP = 13
    ABSORB = 14
    CHANGED = 15
    NOTED = 16


class Frame(NamedTuple):
    """One frame; ``code``: the proof of its sender, empty before there is one."""

    kind: int
    said: bytes
    code: bytes


class FrameReader:
    """Divides bytes into frames. ``limit_bytes`` of a frame grows when the peer is known."""

    def __init__(self) -> None:
        self.limit_bytes = LONGEST_GREETING_BYTES
        self._buffer = bytearray()

    def feed(self, received: bytes) -> Iterator[Frame]:
        """The frames that are complete now; raises ``ValueError`` for one that is too long or too short."""
        buffer = self._buffer
        buffer += received
        while len(buffer) >= _HEAD.size:
            length, kind = _HEAD.unpack_from(buffer)
            if not _HEAD.size + CODE_BYTES <= length <= self.limit_bytes:
                raise ValueError(f"a frame of {length} bytes")
            if len(buffer) < length:
                return
            raw = bytes(buffer[:length])
            del buffer[:length]
            yield Frame(kind, raw[_HEAD.size : -CODE_BYTES], raw[-CODE_BYTES:])


def frame_bytes(kind: Kind, said: bytes, code: bytes = bytes(CODE_BYTES)) -> bytes:
    """A frame."""
    return _HEAD.pack(_HEAD.size + len(said) + CODE_BYTES, kind) + said + code


class Question(NamedTuple):
    """Asks what is known of this number of a session."""

    client: SessionKey
    number: int


class Told(IntEnum):
    """The kinds of answers.

    ``UNKNOWN``: nothing; ``BUSY``: ask again, because the statements are being executed; ``NEWER``: the session has a
    later number; ``KNOWN``: see ``Answer``.
    """

    UNKNOWN = 0
    BUSY = 1
    NEWER = 2
    KNOWN = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What a process knows of one number of a session, which it gives away unless it is ``BUSY``.

    ``written`` and ``lost``: runs of statement ids; ``is_native``: the backend has the record; ``is_sought``: the
    statements must be looked up in the stored rows.
    """

    told: Told
    is_native: bool = False
    is_sought: bool = False
    written: tuple[tuple[int, int], ...] = ()
    lost: tuple[tuple[int, int], ...] = ()


UNKNOWN: Final = Answer(Told.UNKNOWN)
BUSY: Final = Answer(Told.BUSY)
NEWER: Final = Answer(Told.NEWER)
_PLAIN: Final = (UNKNOWN, BUSY, NEWER)


KNOWN_USERS_BYTES: Final = 2 * 1024 * 1024
"""Limit of each of the two caches below."""
_OBJECTS: Final = 8
"""Users as objects take at most this many times the bytes of their document."""


def _weight(users_bytes: int) -> int:
    return (_OBJECTS + 1) * users_bytes


encoded_users: Final[BoundedCache[Identity, bytes]] = BoundedCache(
    KNOWN_USERS_BYTES, lambda _, users: _weight(len(users))
)
identities: Final[BoundedCache[bytes, Identity]] = BoundedCache(KNOWN_USERS_BYTES, lambda users, _: _weight(len(users)))


def _users_bytes(identity: Identity) -> bytes:
    if not identity:
        return b""
    users = encoded_users.get(identity)
    if users is None:
        users = encode({"users": [[user.name, user.database] for user in identity.users]})
        if len(users) <= LONGEST_SESSION_BYTES:
            encoded_users.put(identity, users)
    return users


def _identity(users: bytes) -> Identity:
    if not users:
        return NOBODY
    identity = identities.get(users)
    if identity is None:
        try:
            entries = decode(users)["users"]
        except (InvalidBSON, KeyError) as error:
            raise ValueError(f"not users: {error}") from None
        identity = identity_of((str(name), str(database)) for name, database in entries)
        # The empty identity is false, and needs no entry.
        if identity:
            identities.put(users, identity)
    return identity


def ask_bytes(questions: Sequence[Question]) -> bytes:
    """The questions."""
    parts = [_COUNT.pack(len(questions))]
    for (lsid, identity), number in questions:
        users = _users_bytes(identity)
        parts += (_QUESTION.pack(number, len(lsid), len(users)), lsid, users)
    return b"".join(parts)


def is_askable(client: SessionKey) -> bool:
    """Whether a question about this session fits into a frame; those of drivers are much shorter."""
    return len(client[0]) + len(_users_bytes(client[1])) <= LONGEST_SESSION_BYTES


def questions_in(said: bytes) -> list[Question]:
    """The questions in a frame; raises ``ValueError`` if it is not one."""
    found: list[Question] = []
    try:
        (count,), at = _COUNT.unpack_from(said), _COUNT.size
        for _ in range(min(count, MOST_QUESTIONS)):
            number, session_bytes, users_bytes = _QUESTION.unpack_from(said, at)
            if session_bytes + users_bytes > LONGEST_SESSION_BYTES:
                raise ValueError("a question that is too long")
            at += _QUESTION.size
            users_at, end = at + session_bytes, at + session_bytes + users_bytes
            users = said[users_at:end]
            found.append(Question((said[at:users_at], _identity(users)), number))
            at = end
    except (struct.error, KeyError, TypeError) as error:
        raise ValueError(f"not a question: {error}") from None
    if at != len(said) or len(found) != count:
        raise ValueError("not a question")
    return found


def answer_bytes(answers: Sequence[Answer]) -> bytes:
    """The answers."""
    parts: list[bytes] = []
    for answer in answers:
        parts.append(bytes((answer.told,)))
        if answer.told is Told.KNOWN:
            flags = answer.is_native | answer.is_sought << 1
            parts.append(_KNOWN.pack(flags, len(answer.written), len(answer.lost)))
            parts += [_RUN.pack(start, end & _MOST) for start, end in (*answer.written, *answer.lost)]
    return b"".join(parts)


def answers_in(said: bytes) -> list[Answer]:
    """The answers in a frame; raises ``ValueError`` if it is not one."""
    found: list[Answer] = []
    at = 0
    try:
        while at < len(said):
            told = said[at]
            at += 1
            if told < len(_PLAIN):
                found.append(_PLAIN[told])
                continue
            kind = Told(told)
            flags, written, lost = _KNOWN.unpack_from(said, at)
            at += _KNOWN.size
            packed = [_RUN.unpack_from(said, at + _RUN.size * each) for each in range(written + lost)]
            runs = [(start, start + 1 + (end - start - 1 & _MOST)) for start, end in packed]
            at += _RUN.size * len(runs)
            found.append(Answer(kind, bool(flags & 1), bool(flags & 2), tuple(runs[:written]), tuple(runs[written:])))
    except struct.error as error:
        raise ValueError(f"not an answer: {error}") from None
    return found


def hold_bytes(number: int, database: str) -> bytes:
    """A request to keep readers of the database waiting, or to go on with it."""
    return _HOLD.pack(number) + database.encode()


def hold_in(said: bytes) -> tuple[int, str]:
    """Number and database of a request; raises ``ValueError`` if it is not one."""
    return number_in(said[: _HOLD.size]), said[_HOLD.size :].decode()


def held_bytes(number: int, *, is_granted: bool) -> bytes:
    """The answer to that request."""
    return _HELD.pack(number, is_granted)


def held_in(said: bytes) -> tuple[int, bool]:
    """The number of a hold, and whether it is granted; raises ``ValueError`` if it is no such answer."""
    try:
        number, is_granted = _HELD.unpack(said)
    except struct.error as error:
        raise ValueError(f"not an answer: {error}") from None
    return number, is_granted


def number_bytes(number: int) -> bytes:
    """The end of the hold with this number, or the answer to this change."""
    return _HOLD.pack(number)


def number_in(said: bytes) -> int:
    """That number; raises ``ValueError`` if it is no such message."""
    try:
        (number,) = _HOLD.unpack(said)
    except struct.error as error:
        raise ValueError(f"not a number: {error}") from None
    return int(number)


def ping_bytes(places: int) -> bytes:
    """The content of a ping."""
    return _PING.pack(min(places, _MOST_PLACES))


def ping_in(said: bytes) -> int:
    """The number of places; raises ``ValueError``."""
    if len(said) != _PING.size:
        raise ValueError("ping of wrong length")
    (places,) = _PING.unpack(said)
    return int(places)


def rested_bytes(rested: Sequence[Rested]) -> bytes:
    """Buckets that rest."""
    return b"".join(
        _RESTED.pack(each.collection, each.series, each.stored_id, min(each.rows, _MOST), min(each.size_bytes, _MOST))
        for each in rested
    )


def rested_in(said: bytes) -> list[Rested]:
    """The buckets in a frame; raises ``ValueError`` if it is not one of them."""
    if len(said) % _RESTED.size:
        raise ValueError("not buckets that rest")
    return [Rested(*each) for each in _RESTED.iter_unpack(said)]


def ids_bytes(number: int, ids: Sequence[bytes]) -> bytes:
    """A request to give these buckets up."""
    return _HOLD.pack(number) + b"".join(ids)


def ids_in(said: bytes) -> tuple[int, list[bytes]]:
    """Number and ids of a request; raises ``ValueError`` if it is no such message."""
    if len(said) < _HOLD.size or (len(said) - _HOLD.size) % _ID_BYTES:
        raise ValueError("not ids of buckets")
    (number,) = _HOLD.unpack_from(said)
    return number, [said[at : at + _ID_BYTES] for at in range(_HOLD.size, len(said), _ID_BYTES)]


def given_bytes(number: int, given: Sequence[Given]) -> bytes:
    """The answer to that request: what was given up."""
    return _HOLD.pack(number) + b"".join(_GIVEN.pack(*each) for each in given)


def given_in(said: bytes) -> tuple[int, list[Given]]:
    """Number and documents of an answer; raises ``ValueError`` if it is no such message."""
    if len(said) < _HOLD.size or (len(said) - _HOLD.size) % _GIVEN.size:
        raise ValueError("not buckets that were given up")
    (number,) = _HOLD.unpack_from(said)
    return number, [Given(*each) for each in _GIVEN.iter_unpack(said[_HOLD.size :])]


def orders_bytes(orders: Sequence[Order]) -> bytes:
    """Orders to absorb documents."""
    return b"".join(
        _ABSORB.pack(each.stored_id, len(each.others)) + b"".join(_GIVEN.pack(*other) for other in each.others)
        for each in orders
    )


def orders_in(said: bytes) -> list[Order]:
    """The orders in a frame; raises ``ValueError`` if it is not one of them."""
    found: list[Order] = []
    at = 0
    try:
        while at < len(said):
            stored_id, count = _ABSORB.unpack_from(said, at)
            at += _ABSORB.size
            end = at + count * _GIVEN.size
            if end > len(said) or count > MOST_OF_A_SERIES:
                raise ValueError("orders that are cut short, or too long")
            found.append(Order(stored_id, [Given(*each) for each in _GIVEN.iter_unpack(said[at:end])]))
            at = end
    except struct.error as error:
        raise ValueError(f"not orders: {error}") from None
    return found
