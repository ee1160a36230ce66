"""Carries read plans out on a real server, without a proxy in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson.codec_options import CodecOptions
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from catalog.bson.codec import CODEC, decode, encode
from catalog.namespaces import Namespace, TimeseriesOptions, VirtualCollection
from rewrite.commands.reads import READ_REWRITERS
from rewrite.plan import GUESS_FAILED, Cursor, PassThrough, Request, Single
from rewrite.profile import Profile


def profile_of(client: MongoClient[dict[str, Any]]) -> Profile:
    """The profile of the server behind ``client``."""
    major, minor, patch = client.server_info()["versionArray"][:3]
    return Profile(version=(major, minor, patch))


def virtual_collection(client: MongoClient[dict[str, Any]], database: str, name: str) -> VirtualCollection:
    """What the server says of a native collection."""
    entry = next(iter(client[database].list_collections(filter={"name": name})))
    return VirtualCollection(
        Namespace(database, name),
        TimeseriesOptions.from_document(entry["options"]["timeseries"]),
        collation=entry["options"].get("collation"),
    )


def request_for(body: Mapping[str, Any], target: VirtualCollection, profile: Profile, **flags: Any) -> Request:
    """A client's command on ``target``."""
    name = next(iter(body))
    return Request(name, target.namespace, body, target, profile, **flags)


def send(client: MongoClient[dict[str, Any]], database: str, body: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """The server's reply, errors included."""
    codec: CodecOptions[dict[str, Any]] = CODEC
    try:
        return client[database].command(dict(body), codec_options=codec, **options)
    except OperationFailure as failure:
        return dict(failure.details or {})


def carry_out(client: MongoClient[dict[str, Any]], request: Request, **options: Any) -> dict[str, Any]:
    """The client's reply, as the shell would make it of the plan."""
    plan = READ_REWRITERS[request.name](request)
    match plan:
        case PassThrough():
            return send(client, request.namespace.database, request.body, **options)
        case Single() | Cursor():
            reply = send(client, plan.step.database, plan.step.body, **options)
            if plan.otherwise is not None and reply.get("code") == GUESS_FAILED:
                sure = plan.otherwise()
                reply = send(client, sure.database, sure.body, **options)
            if reply.get("ok") != 1:
                return reply
            if isinstance(plan, Cursor):
                reply["cursor"]["ns"] = str(plan.namespace)
                return reply
            if plan.reshape_raw:
                return decode(plan.reshape_raw(encode(reply)))
            return plan.reshape(reply) if plan.reshape else reply
    raise AssertionError(plan)


def rows(reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first batch of a cursor reply."""
    return list(reply["cursor"]["firstBatch"])
