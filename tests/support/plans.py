"""Carries plans out on a real server through the translate handler, without a proxy around it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.client_session import ClientSession as PymongoSession

from catalog.bson.codec import CODEC
from catalog.errors import CommandError
from catalog.namespaces import BUCKETS_PREFIX, Namespace, TimeseriesOptions, VirtualCollection
from proxy.client_fields import SESSION_FIELDS
from proxy.cursor_names import CursorNames
from proxy.handlers.translate import Surroundings, TranslateHandler
from rewrite.plan import CatalogStats, Document, Effect
from rewrite.profile import Profile
from rewrite.registry import REWRITERS

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


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
    """The server itself, in one session so that cursors go on over any connection."""

    def __init__(self, client: MongoClient[Any], session: PymongoSession | None = None) -> None:
        self.client = client
        self.session = session
        self.sent: list[Document] = []

    async def run(self, database: str, body: Mapping[str, Any] | bytes, extra: bytes = b"") -> bytes:
        """One command with further raw elements; error replies come back as replies."""
        encoded = body if isinstance(body, bytes) else bson.encode(body, codec_options=CODEC)
        inner = encoded[4:-1] + extra
        document = (len(inner) + 5).to_bytes(4, "little") + inner + b"\0"
        self.sent.append(bson.decode(document, codec_options=CODEC))
        return self.send(database, document)

    async def run_raw(self, database: str, body: Mapping[str, Any]) -> bytes:
        """One command of the service account."""
        return await self.run(database, body)

    def send(self, database: str, document: bytes) -> bytes:
        """The raw reply."""
        # Decoded at the top only, so that documents keep their bytes.
        command: dict[str, Any] = dict(RawBSONDocument(document))
        session = None if any(name.encode() in SESSION_FIELDS for name in command) else self.session
        reply = self.client[database].command(command, check=False, codec_options=RAW, session=session)
        return bytes(reply.raw)


class PlanRunner:
    """Runs commands as the proxy would; ``native`` runs them on the server as they are."""

    def __init__(self, client: MongoClient[Any], catalog_stats: CatalogStats = lambda _: {}) -> None:
        self.client = client
        self.effects: list[Effect] = []
        self.cursors = CursorNames()
        self.session = client.start_session()
        self.upstream = Direct(client, self.session)
        self.profile = profile_of(client)
        self.handler = TranslateHandler(
            Surroundings(
                rewriters=REWRITERS,
                profile=lambda: self.profile,
                resolve=lambda namespace: virtual_collection(client, namespace),
                catalog_stats=catalog_stats,
                service=self.upstream,
                take_effect=self.effects.append,
                cursors=self.cursors,
            )
        )

    def close(self) -> None:
        """Ends the server session."""
        self.session.end_session()

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
            return bson.decode(await self.handler(self, command, target), codec_options=CODEC)
        except CommandError as error:
            return error.reply()

    def native(self, database: str, body: Mapping[str, Any]) -> Document:
        """The reply that a client of the server itself gets."""
        return bson.decode(self.upstream.send(database, bson.encode(body, codec_options=CODEC)), codec_options=CODEC)
