"""The table of admin commands: names, fields, who may use them. Data only.

``{tsproxy: <name>, <field>: <value>, …}`` on the database ``admin``. What executes a command is elsewhere in this room;
``proxy.admin.handler`` knows only the commands that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Right(Enum):
    """Who may use a command: anyone who has authenticated, who may look at the server, who may stop things there."""

    ANYONE = "anyone"
    READ = "read"
    CHANGE = "change"

    @property
    def actions(self) -> tuple[str, ...]:
        """The privileges on the cluster that the backend must have granted."""
        return ACTIONS[self]


ACTIONS: Final[Mapping[Right, tuple[str, ...]]] = {
    Right.ANYONE: (),
    Right.READ: ("serverStatus", "inprog"),
    Right.CHANGE: ("killop", "shutdown"),
}


class Kind(Enum):
    """The type of a field's value, with the name that errors use."""

    TEXT = "string"
    WHOLE = "whole number"
    NUMBER = "number"
    FLAG = "bool"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a command, with the bounds of numbers."""

    kind: Kind
    text: str
    is_required: bool = False
    least: int = 0
    most: int = 2**31


@dataclass(frozen=True, slots=True)
class AdminCommand:
    """One command."""

    right: Right
    text: str
    fields: Mapping[str, Field]


MOST_ENTRIES: Final = 1_000
"""Maximum number of entries in one reply."""
USUAL_ENTRIES: Final = 100
MOST_WAIT_SECONDS: Final = 3_600

_LIMIT: Final = Field(Kind.WHOLE, f"maximum number of entries, {USUAL_ENTRIES} by default", least=1, most=MOST_ENTRIES)
_WAIT: Final = "how long the reply may wait for running commands and commits"

COMMANDS: Final[Mapping[str, AdminCommand]] = {
    "help": AdminCommand(Right.ANYONE, "List the commands with their fields and the privileges they require.", {}),
    "status": AdminCommand(Right.READ, "Show what the proxy is and does, and whether it is ready.", {}),
    "clients": AdminCommand(
        Right.READ,
        "List client connections, those with the longest running commands first.",
        {
            "limit": _LIMIT,
            "address": Field(Kind.TEXT, "only clients from this address"),
            "user": Field(Kind.TEXT, "only clients logged in as this user, as name@database"),
            "state": Field(Kind.TEXT, "only clients in this state: idle, running, held, receiving or monitoring"),
            "minSeconds": Field(Kind.NUMBER, "only clients whose command has run at least this long"),
        },
    ),
    "collections": AdminCommand(
        Right.READ,
        "List the known time-series collections with their open buckets.",
        {"limit": _LIMIT, "database": Field(Kind.TEXT, "only collections of this database")},
    ),
    "buckets": AdminCommand(
        Right.READ,
        "List the open buckets of a collection.",
        {
            "collection": Field(Kind.TEXT, "the collection, as database.collection", is_required=True),
            "meta": Field(Kind.ANY, "only the buckets of this meta value; requires find on the collection"),
            "limit": _LIMIT,
        },
    ),
    "peers": AdminCommand(Right.READ, "List the other proxies that are connected to the backend.", {}),
    "config": AdminCommand(Right.READ, "Show the settings in effect with their sources, secrets masked.", {}),
    "slow": AdminCommand(
        Right.READ,
        "List the latest slow commands, without values, the newest first.",
        {
            "limit": _LIMIT,
            "minMs": Field(Kind.NUMBER, "only commands that took at least this long"),
            "database": Field(Kind.TEXT, "only commands on this database"),
        },
    ),
    "pause": AdminCommand(
        Right.CHANGE,
        "Hold new commands of clients until resume, for example while the backend is restarted.",
        {
            "limitSeconds": Field(
                Kind.NUMBER, "how long a command is held before it fails with a retryable error", most=MOST_WAIT_SECONDS
            ),
            "waitSeconds": Field(Kind.NUMBER, _WAIT, most=MOST_WAIT_SECONDS),
        },
    ),
    "resume": AdminCommand(
        Right.CHANGE,
        "End pause or drain, and start the commands that are held.",
        {"force": Field(Kind.FLAG, "also if the backend does not answer")},
    ),
    "drain": AdminCommand(
        Right.CHANGE,
        "Disconnect all other clients when their commands end, and accept no new ones, as at SIGTERM.",
        {"waitSeconds": Field(Kind.NUMBER, _WAIT, most=MOST_WAIT_SECONDS)},
    ),
    "reload": AdminCommand(Right.CHANGE, "Reload the settings, as SIGHUP does.", {}),
    "kill": AdminCommand(
        Right.CHANGE,
        "Close the connection of a client.",
        {"connection": Field(Kind.WHOLE, "its id, as clients shows it", is_required=True, most=2**53)},
    ),
    "close": AdminCommand(
        Right.CHANGE,
        "Close the open buckets of a collection or of one series; later measurements go to new buckets.",
        {
            "collection": Field(Kind.TEXT, "the collection, as database.collection", is_required=True),
            "meta": Field(Kind.ANY, "only the buckets of this meta value; requires find on the collection"),
        },
    ),
}
