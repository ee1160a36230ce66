"""Carries plans out on a real server through the translate handler, without a proxy around it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import bson
from pymongo import MongoClient

from catalog.bson.codec import CODEC
from catalog.errors import CommandError
from catalog.identity import NOBODY
from catalog.namespaces import BUCKETS_PREFIX, Namespace, TimeseriesOptions, VirtualCollection
from proxy.clients.relay_only import no_others
from proxy.reads.cursor_names import CursorNames
from proxy.reads.plan_environment import PlanEnvironment
from proxy.reads.translate import TranslateHandler
from proxy.request.times import Times
from rewrite.plan import CatalogStats, Document, Effect
from rewrite.profile import Profile
from rewrite.registry import REWRITERS


def profile_of(client: MongoClient[Any]) -> Profile:
    """The profile of the server behind ``client``."""
    major, minor, patch = client.server_info()["versionArray"][:3]
    return Profile(version=(major, minor, patch))


def virtual_collection(client: MongoClient[Any], namespace: Namespace) -> VirtualCollection | None:
    """What the server says of this collection, ``None`` unless it is a time-series collection."""
    wanted = {"type": "timeseries", "name": namespace.collection}
    for entry in client.get_database(namespace.database, codec_options=CODEC).list_collections(filter=wanted):
        options = entry["options"]
        return VirtualCollection(
            namespace, TimeseriesOptions.from_document(options["timeseries"]), collation=options.get("collation")
        )
    return None


@dataclass(frozen=True, slots=True)
class SentCommand:
    """A client's command, encoded."""

    name: str
    namespace: Namespace
    body: bytes
    sequences: Sequence[tuple[str, Sequence[bytes]]] = ()


class Direct:
    """The server itself over one connection, without a driver that would add a session of its own."""

    def __init__(self, client: MongoClient[Any]) -> None:
        client.admin.command("ping")
        assert client.address is not None
        self._socket = socket.create_connection(client.address)
        self.sent: list[Document] = []

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    is_closed = False

    async def run(self, database: str, body: Mapping[str, Any] | bytes, extra: bytes = b"") -> bytes:
        """One command with further raw elements; error replies come back as replies."""
        encoded = body if isinstance(body, bytes) else bson.encode(body, codec_options=CODEC)
        self.sent.append(bson.decode(encoded, codec_options=CODEC))
        inner = encoded[4:-1] + extra + bson.encode({"$db": database})[4:-1]
        document = (len(inner) + 5).to_bytes(4, "little") + inner + b"\0"
        self._socket.sendall(struct.pack("<iiiiIB", 21 + len(document), 1, 0, 2013, 0, 0) + document)
        header = self._receive(21)
        return self._receive(struct.unpack_from("<i", header)[0] - 21)

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            assert part, "the server closed the connection"
            received += part
        return bytes(received)

    async def run_raw(self, database: str, body: Mapping[str, Any]) -> bytes:
        """One command of the service account."""
        return await self.run(database, body)


class PlanRunner:
    """Runs commands as the proxy would; ``native`` runs them on the server as they are."""

    identity = NOBODY
    peer = ""

    def __init__(self, client: MongoClient[Any], catalog_stats: CatalogStats = lambda _: {}) -> None:
        self.client = client
        self.effects: list[Effect] = []
        self.cursors = CursorNames()
        self.upstream = Direct(client)
        self.profile = profile_of(client)
        self.handler = TranslateHandler(
            PlanEnvironment(
                rewriters=REWRITERS,
                profile=lambda: self.profile,
                resolve=lambda namespace: virtual_collection(client, namespace),
                resolve_anew=self._resolve_anew,
                catalog_stats=catalog_stats,
                service=self.upstream,
                take_effect=self.effects.append,
                announce=no_others,
                cursors=self.cursors,
            )
        )

    async def _resolve_anew(self, namespace: Namespace) -> VirtualCollection | None:
        return virtual_collection(self.client, namespace)

    def close(self) -> None:
        """Ends its connection."""
        self.upstream.close()

    def run(self, database: str, body: Mapping[str, Any]) -> Document:
        """The reply that a client of the proxy gets."""
        name = next(iter(body))
        value = body[name]
        namespace = Namespace(database, value if isinstance(value, str) else "")
        command = SentCommand(name, namespace, bson.encode(body, codec_options=CODEC))
        return asyncio.run(self._run(command))

    async def _run(self, command: SentCommand) -> Document:
        target = None
        if command.namespace.collection and not command.namespace.collection.startswith(BUCKETS_PREFIX):
            target = virtual_collection(self.client, command.namespace)
        try:
            return bson.decode(await self.handler(self, command, target, Times()), codec_options=CODEC)
        except CommandError as error:
            return error.reply()

    def native(self, database: str, body: Mapping[str, Any]) -> Document:
        """The reply that a client of the server itself gets."""
        return bson.decode(asyncio.run(self.upstream.run(database, body)), codec_options=CODEC)
