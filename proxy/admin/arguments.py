"""Checks an admin command and decodes its fields, before anything is done."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bson.int64 import Int64

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.admin.administrator import Administrator
from proxy.admin.table import AdminCommand, Field, Kind
from proxy.request.command import Command
from proxy.request.command_table import ADMIN
from proxy.request.exchange import Exchange
from proxy.request.session import Session
from proxy.wire.framing import STRING, TYPE_NAMES

BAD_VALUE: Final = 2
UNAUTHORIZED: Final = 13
TYPE_MISMATCH: Final = 14
INVALID_NAMESPACE: Final = 73
IN_TRANSACTION: Final = 263
API_STRICT: Final = 323
MISSING_FIELD: Final = 40414
UNKNOWN_FIELD: Final = 40415

MOST_BYTES: Final = 64 * 1024
"""Maximum size of an admin command."""

_OF_EVERY_COMMAND: Final = frozenset(
    {"lsid", "comment", "maxTimeMS", "readConcern", "writeConcern", "apiVersion", "apiStrict", "apiDeprecationErrors"}
)
"""Fields that drivers add, besides those that begin with a dollar sign."""


@dataclass(frozen=True, slots=True)
class Call:
    """An admin command that was checked: its name, its fields by name, and who has sent it.

    A value of any type (``Kind.ANY``) is raw: the type byte, then the value.
    """

    name: str
    fields: Mapping[str, Any]
    administrator: Administrator

    @property
    def session(self) -> Session:
        """The session of the client, which is connected to this process."""
        assert self.administrator.session is not None
        return self.administrator.session

    def number(self, name: str, otherwise: float) -> float:
        """The value of a field that is a number."""
        value = self.fields.get(name)
        return otherwise if value is None else float(value)

    @property
    def namespace(self) -> Namespace:
        """The field ``collection``; raises ``CommandError`` if it is not database.collection."""
        database, dot, collection = str(self.fields["collection"]).partition(".")
        if not (database and dot and collection):
            raise CommandError(
                INVALID_NAMESPACE, f"collection = '{self.fields['collection']}' is not database.collection"
            )
        return Namespace(database, collection).logical


def call_of(exchange: Exchange, command: Command, known: Mapping[str, AdminCommand]) -> Call:
    """The admin command in ``command``, one of ``known``; raises ``CommandError`` that names what is wrong."""
    if command.namespace.database != "admin":
        raise CommandError(UNAUTHORIZED, f"{ADMIN} may only be run against the admin database.")
    if command.in_transaction:
        raise CommandError(IN_TRANSACTION, f"Cannot run '{ADMIN}' in a multi-document transaction.")
    if command.get("apiStrict") is True:
        raise CommandError(
            API_STRICT,
            f"Provided apiStrict:true, but the command {ADMIN} is not in API Version 1: it is a command of the proxy",
        )
    if len(command.body) > MOST_BYTES or command.sequences:
        raise CommandError(
            BAD_VALUE, f"the command {ADMIN} must not exceed {MOST_BYTES} bytes or have document sequences"
        )
    kind = command.fields[ADMIN.encode()][0]
    if kind != STRING:
        raise CommandError(
            TYPE_MISMATCH,
            f"{ADMIN} must be the name of an admin command, a string, not {_type_name(kind)}; {_choices(known)}",
        )
    name = command.namespace.collection
    if name not in known:
        near = difflib.get_close_matches(name[:64], list(known), n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise CommandError(BAD_VALUE, f"'{name[:64]}' is not an admin command; {hint}{_choices(known)}")
    return Call(name, _fields(name, command, known[name].fields), Administrator.of(exchange.session))


def _choices(known: Collection[str]) -> str:
    return f"there are {', '.join(known)}"


def _fields(name: str, command: Command, expected: Mapping[str, Field]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for raw, (kind, start, end) in command.fields.items():
        field = raw.decode(errors="replace")
        if field == ADMIN or field.startswith("$") or (field in _OF_EVERY_COMMAND and field not in expected):
            continue
        if field not in expected:
            takes = f"it has {', '.join(expected)}" if expected else "it has no fields"
            raise CommandError(UNKNOWN_FIELD, f"'{field[:64]}' is not a field of '{name}'; {takes}")
        if expected[field].kind is Kind.ANY:
            found[field] = bytes((kind,)) + command.body[start:end]
        else:
            found[field] = _checked(name, field, expected[field], kind, command.get(field))
    for field, wanted in expected.items():
        if wanted.is_required and field not in found:
            raise CommandError(MISSING_FIELD, f"'{name}' requires the field '{field}': {wanted.text}")
    return found


def _checked(name: str, field: str, expected: Field, kind: int, value: Any) -> Any:
    match expected.kind:
        case Kind.TEXT:
            fits = isinstance(value, str)
        case Kind.FLAG:
            fits = isinstance(value, bool)
        case _:
            fits = isinstance(value, int | float | Int64) and not isinstance(value, bool)
    if not fits:
        raise CommandError(
            TYPE_MISMATCH, f"'{field}' of '{name}' must be a {expected.kind.value}, not {_type_name(kind)}"
        )
    if expected.kind in (Kind.WHOLE, Kind.NUMBER):
        is_whole = expected.kind is Kind.WHOLE
        if not expected.least <= value <= expected.most or (is_whole and value != int(value)):
            raise CommandError(
                BAD_VALUE,
                f"'{field}' of '{name}' must be a {expected.kind.value} from {expected.least} to {expected.most}",
            )
        return int(value) if is_whole else float(value)
    return value


def _type_name(kind: int) -> str:
    return str(TYPE_NAMES.get(kind, kind))
