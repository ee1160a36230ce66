"""Reads from members of the replica set other than the primary.

Clients see the proxy as a mongos and send ``$readPreference``. The member is chosen here, by the rules that all drivers
share, from what the proxy's own driver knows about the set. Each client gets its own connection to each member that it
reads from. A cursor stays on its member, whichever connection a driver uses to continue it.

Only without access control: a login is valid for one connection, which is that to the primary.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from bson.raw_bson import RawBSONDocument
from pymongo.errors import ConfigurationError
from pymongo.read_preferences import make_read_preference, read_pref_mode_from_name
from pymongo.topology_description import TopologyDescription

from catalog.bounded import remember
from catalog.errors import CommandError
from proxy.members.joins_applied import JoinsApplied, MemberAddress
from proxy.reads.cursors import TOLERANT_RAW
from proxy.request.attempt import stores_result
from proxy.request.command import Command
from proxy.request.command_table import ABOUT_CURSORS, ANY_MEMBER
from proxy.request.session import Session
from proxy.upstream.connection import Upstream
from proxy.upstream.dialing import Dialer, upstream_name

MAX_CURSORS: Final = 65_536
"""The backend ends cursors that no client finishes; the oldest ones are removed here."""

CURSOR_SECONDS: Final = 900.0
"""Servers end cursors that are idle for ten minutes."""
AVOIDED_SECONDS: Final = 5.0
"""After this time the proxy's own driver has detected a member that does not respond."""

_PREFERENCE: Final = b"$readPreference"
NO_SUITABLE_MEMBER: Final = 133
STALENESS_OUT_OF_RANGE: Final = 160


class MemberSelector:
    """Chooses the member for each read, and records the member of each cursor."""

    def __init__(
        self,
        topology: Callable[[], TopologyDescription],
        dialer_to: Callable[[MemberAddress], Dialer],
        joins: JoinsApplied | None = None,
    ) -> None:
        """``topology`` returns the current state of the set; ``dialer_to`` connects to one member.

        ``joins``: ``None`` if there are none.
        """
        self._topology = topology
        self._dialer_to = dialer_to
        self._cursors: OrderedDict[int, MemberAddress] = OrderedDict()
        self._avoided: dict[MemberAddress, float] = {}
        self._former_primaries: dict[MemberAddress, float] = {}
        self._joins = joins

    def avoid(self, session: Session) -> None:
        """Prefer other members for a while, because the one that this session reads from does not respond."""
        if session.member is not None:
            self._avoided[session.member] = time.monotonic() + AVOIDED_SECONDS

    def is_avoided(self, address: MemberAddress) -> bool:
        """Whether other members are preferred to this one."""
        return self._avoided.get(address, 0.0) > time.monotonic()

    def session_for(self, session: Session, command: Command) -> Session:
        """The session for ``command``: the client's own, or one on the connection to another member.

        Raises ``CommandError`` 133 if no member matches, as a mongos does.
        """
        if command.name in ABOUT_CURSORS:
            address = self._cursors.get(_cursor_id(command))
        elif (
            _PREFERENCE not in command.fields
            or command.name not in ANY_MEMBER
            or command.in_transaction
            or session.identity
            or stores_result(command)
        ):
            return session
        else:
            address = self._chosen(command.get("$readPreference"))
        return session if address is None else self._at(session, address)

    def may_meet_joins(self, session: Session, command: Command) -> bool:
        """Whether a read that begins now may meet a join that its member has yet to apply: see ``past_joins``."""
        if self._joins is None or session.member is None or command.name in ABOUT_CURSORS:
            return False
        return not self._joins.are_certain(session.member, command.namespace.database)

    async def past_joins(self, session: Session, command: Command) -> Session:
        """Where the read may begin, after a moment: its member, or the primary if that is too far behind."""
        assert self._joins is not None
        if await self._joins.awaited(session, command.namespace.database):
            return session
        self.avoid(session)
        return session.home or session

    def was_primary(self, address: MemberAddress) -> None:
        """Record that cursors stay on the server that stepped down; a step-down ends none."""
        self._former_primaries[address] = time.monotonic() + CURSOR_SECONDS

    @property
    def has_former_primaries(self) -> bool:
        """Whether there may be cursors on other members than the primary."""
        now_seconds = time.monotonic()
        for address in [address for address, until in self._former_primaries.items() if until < now_seconds]:
            del self._former_primaries[address]
        return bool(self._former_primaries)

    def seek_cursor(self, session: Session, command: Command) -> bool:
        """The cursor of ``command`` was not found in ``session``: whether there is another place to look for it.

        If so, that is where ``session_for`` leads the command next. Raises nothing.
        """
        readable = {server.address for server in self._topology().server_descriptions().values() if server.is_readable}
        places = [address for address in sorted(self._former_primaries, key=str) if address in readable]
        tried = places.index(session.member) + 1 if session.member in places else 0
        cursor_id = _cursor_id(command)
        if session.upstream.is_bound or tried >= len(places):
            self._cursors.pop(cursor_id, None)
            return False
        self._cursors[cursor_id] = places[tried]
        return True

    def record_cursor(self, session: Session, reply: bytes) -> None:
        """Record the cursor that a reply from another member opened, or remove the one that it ended."""
        document = RawBSONDocument(reply, TOLERANT_RAW)
        cursor = document.get("cursor")
        if not isinstance(cursor, Mapping):
            return
        cursor_id = cursor.get("id")
        if cursor_id and session.member is not None:
            remember(self._cursors, cursor_id, session.member, MAX_CURSORS)

    def _chosen(self, preference: Any) -> MemberAddress | None:
        """The address of the member; ``None`` for the primary."""
        if not isinstance(preference, Mapping) or preference.get("mode", "primary") == "primary":
            return None
        tags, staleness_seconds = preference.get("tags"), preference.get("maxStalenessSeconds", -1)
        try:
            mode = read_pref_mode_from_name(str(preference.get("mode")))
            wanted = make_read_preference(mode, tags or None, staleness_seconds)
        except (ConfigurationError, TypeError, ValueError, KeyError):
            # The backend reports the error.
            return None
        topology = self._topology()
        try:
            suitable = topology.apply_selector(wanted)
        except ConfigurationError as error:
            raise CommandError(STALENESS_OUT_OF_RANGE, str(error)) from None
        suitable = [server for server in suitable if not self.is_avoided(server.address)]
        if suitable:
            server = random.choice(suitable)  # noqa: S311 -- spreads load
            if server.server_type_name == "RSPrimary":
                return None
            return server.address
        if tags or staleness_seconds != -1:
            raise CommandError(
                NO_SUITABLE_MEMBER, f"Could not find host matching read preference {dict(preference)} for the set"
            )
        # The primary is the only member, or the only one available.
        return None

    def _at(self, session: Session, address: MemberAddress) -> Session:
        name = upstream_name(*address)
        known = session.members.get(name)
        if known is None:
            upstream = Upstream(self._dialer_to(address), lambda: None, to_primary=False)
            upstream.hello = session.upstream.hello
            known = session.members[name] = replace(
                session, upstream=upstream, members={}, member=address, home=session
            )
        return known


def _cursor_id(command: Command) -> int:
    if command.name == "getMore":
        found = command.get("getMore")
    else:
        listed = command.get("cursors")
        found = listed[0] if isinstance(listed, list) and listed else None
    return found if isinstance(found, int) else 0
