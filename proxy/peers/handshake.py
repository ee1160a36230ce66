"""How two proxies prove to one another that they have the same account, and sign what they say.

Both know a secret that is derived from the account's credentials (``proxy.request.service_sessions``). Each sends a
random number, and proves that it knows the secret by a code over everything that was said, with its role in it: so a
proof can be neither replayed nor reflected. From then on, every frame has a code over its number, its direction and its
content. So the links need no certificates. An attacker on the network can read, delay or drop frames, but not forge
them.

Without access control, the secret is the same for everyone: whoever reaches the port is taken for a proxy.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from proxy.peers.frames import CODE_BYTES, Frame, Kind, frame_bytes

VERSION: Final = 6
"""Version of this protocol; proxies with different versions do not link."""
NONCE_BYTES: Final = 16
"""Length of the random number of each side."""
_MAGIC: Final = b"tsproxy peer %d\0" % VERSION
_HELLO: Final = struct.Struct("<HBBi")
"""Port, ``_HAS_TLS`` and ``_KEEPS_READERS``, the length of the name, and the first place or ``_NOT_TOLD``."""
_NOT_TOLD: Final = -1
_HAS_TLS: Final = 1
_KEEPS_READERS: Final = 2
_SEQUENCE: Final = struct.Struct("<Q")

ASKER: Final = b"asker"
ANSWERER: Final = b"answerer"


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a proxy says of itself: its name at the backend, and the port of its listener for peers.

    ``keeps_readers``: whether it can keep its readers waiting while another proxy joins parts. ``first_place``: of
    its buckets (``catalog.parts``); ``None``: it does not say.
    """

    name: str
    port: int
    has_tls: bool = False
    keeps_readers: bool = False
    first_place: int | None = None


def key_of(secret: bytes) -> bytes:
    """The key of all links of an account."""
    return hmac.digest(secret, b"links between proxies", "sha256")


def series_key_of(secret: bytes) -> bytes:
    """The key of what proxies of an account call series: nobody else can find out a meta value by trying."""
    return hmac.digest(secret, b"series of resting buckets", "sha256")


def nonce() -> bytes:
    """A random number of this link."""
    return secrets.token_bytes(NONCE_BYTES)


def greeting(own: Introduction, own_nonce: bytes) -> bytes:
    """What both sides send first."""
    name = own.name.encode()
    flags = _HAS_TLS * own.has_tls | _KEEPS_READERS * own.keeps_readers
    first_place = _NOT_TOLD if own.first_place is None else own.first_place
    return _MAGIC + own_nonce + _HELLO.pack(own.port, flags, len(name), first_place) + name


def read_greeting(said: bytes) -> Introduction:
    """Who sent a greeting; raises ``ValueError`` if it is not one."""
    at = len(_MAGIC) + NONCE_BYTES
    if not said.startswith(_MAGIC) or len(said) < at + _HELLO.size:
        raise ValueError("not a greeting of this version")
    port, flags, length, first_place = _HELLO.unpack_from(said, at)
    end = at + _HELLO.size + length
    if len(said) != end:
        raise ValueError("greeting of wrong length")
    name = said[at + _HELLO.size :].decode()
    has_tls, keeps_readers = bool(flags & _HAS_TLS), bool(flags & _KEEPS_READERS)
    return Introduction(name, port, has_tls, keeps_readers, None if first_place == _NOT_TOLD else first_place)


def proof(key: bytes, role: bytes, hello: bytes, challenge: bytes) -> bytes:
    """Shows that this role knows the key; ``hello`` and ``challenge`` are the two greetings."""
    return hmac.digest(key, _conversation(role, hello, challenge), "sha256")


def is_proof(given: bytes, key: bytes, role: bytes, hello: bytes, challenge: bytes) -> bool:
    """Whether it is that proof."""
    return hmac.compare_digest(given, proof(key, role, hello, challenge))


def _conversation(role: bytes, hello: bytes, challenge: bytes) -> bytes:
    return b"".join(_SEQUENCE.pack(len(part)) + part for part in (role, hello, challenge))


class Channel:
    """Signs the frames of one side of a link, and checks those of the other."""

    def __init__(self, key: bytes, role: bytes, hello: bytes, challenge: bytes) -> None:
        """``role``: of this side."""
        session = hmac.digest(key, _conversation(b"frames", hello, challenge), "sha256")
        other = ANSWERER if role == ASKER else ASKER
        self._sends = hmac.digest(session, role, "sha256")
        self._gets = hmac.digest(session, other, "sha256")
        self._sent = 0
        self._got = 0

    def seal(self, kind: Kind, said: bytes = b"") -> bytes:
        """The next frame to send."""
        code = _code(self._sends, self._sent, kind, said)
        self._sent += 1
        return frame_bytes(kind, said, code)

    def is_genuine(self, frame: Frame) -> bool:
        """Whether the other side sent this as its next frame."""
        code = _code(self._gets, self._got, frame.kind, frame.said)
        self._got += 1
        return hmac.compare_digest(code, frame.code)


def _code(key: bytes, sequence: int, kind: int, said: bytes) -> bytes:
    digest = blake2b(key=key, digest_size=CODE_BYTES)
    digest.update(_SEQUENCE.pack(sequence) + bytes((kind,)))
    digest.update(said)
    return digest.digest()
