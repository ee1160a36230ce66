"""The conditions that a command must meet before it may start, and their check.

Parsed and recognised commands pass the same checks: the collection has not changed, the client has the rights for what
the proxy does for it, and no join of bucket parts keeps readers out.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from catalog.namespaces import Namespace, VirtualCollection
from proxy.request import router
from proxy.request.authorisation import INSERT, write_actions
from proxy.request.command import Command
from proxy.request.command_table import ABOUT_CURSORS, ANY_MEMBER, INLINE, TABLE, Target
from proxy.request.exchange import Reader
from proxy.request.ports import Gate, Readers
from proxy.request.session import Session

NeededRight: TypeAlias = tuple[tuple[str, ...], Namespace]
"""Actions on a collection."""

PREFERENCE: Final = b"$readPreference"
_FIND: Final = ("find",)


class Needs:
    """The conditions of one command on its route."""

    __slots__ = ("asks_members", "collection", "namespace", "reader", "rights")

    def __init__(
        self,
        namespace: Namespace | None = None,
        collection: VirtualCollection | None = None,
        rights: tuple[NeededRight, ...] = (),
        reader: Reader | None = None,
        *,
        asks_members: bool = False,
    ) -> None:
        """``namespace`` must refer to ``collection``, ``None`` for an ordinary one; without ``namespace``, to anything.

        ``rights``: for what the proxy does for the client; ``reader``: what joins must wait for. ``asks_members``: a
        member of the replica set is selected for the command, which may be a different one each time.
        """
        self.namespace = namespace
        self.collection = collection
        self.rights = rights
        self.reader = reader
        self.asks_members = asks_members


class Requirements:
    """Determines the conditions of commands, and checks them."""

    def __init__(self, lookup: router.Lookup, gate: Gate, readers: Readers | None, *, has_members: bool) -> None:
        """``readers`` is ``None`` if there are no joins.

        ``has_members``: reads and cursors may have to go to other members than the client's own connection.
        """
        self._lookup = lookup
        self._gate = gate
        self._readers = readers
        self.has_members = has_members

    def of(self, command: Command, route: router.Route) -> Needs:
        """The conditions of ``command`` on this route."""
        asks_members = self.has_members and (
            command.name in ABOUT_CURSORS or (command.name in ANY_MEMBER and PREFERENCE in command.fields)
        )
        readers = self._readers
        if isinstance(route, router.Ingest):
            namespace = route.collection.namespace
            return Needs(namespace, route.collection, ((write_actions(command, INSERT), namespace),))
        if isinstance(route, router.Translate):
            reader = None if readers is None else readers.of_rewritten(command.namespace)
            collection = route.collection
            if collection is None or command.name not in INLINE:
                return Needs(reader=reader, asks_members=asks_members)
            namespace = collection.namespace
            rights = ((_FIND, namespace), (_FIND, namespace.buckets))
            return Needs(namespace, collection, rights, reader, asks_members=asks_members)
        if isinstance(route, router.Relay):
            row = TABLE.get(command.name)
            has_name = row is not None and row.target is Target.FIRST and command.namespace.collection != ""
            named = command.namespace if has_name else None
            # Only inserts into time-series collections are relayed or not as their fields say.
            known = self._lookup(named) if named is not None and command.name != "insert" else None
            collection = known if isinstance(known, VirtualCollection) else None
            reader = None if readers is None else readers.of_relayed(command)
            return Needs(named, collection, (), reader, asks_members=asks_members)
        return Needs()

    def are_met(self, session: Session, needs: Needs) -> bool:
        """Whether a command with these conditions may start at once; also false if the backend must be asked first."""
        if not self.is_as_it_was(needs):
            return False
        if needs.rights:
            if not self.rights(session, needs):
                return False
        elif self._gate.must_log_in(session):
            return False
        reader = needs.reader
        return reader is None or not reader.is_kept_out

    def is_as_it_was(self, needs: Needs) -> bool:
        """Whether the namespace still refers to the same collection."""
        namespace = needs.namespace
        return namespace is None or self._lookup(namespace) is needs.collection

    def rights(self, session: Session, needs: Needs) -> bool | None:
        """Whether the client has the rights, from the cache; ``None`` if the backend must be asked."""
        for actions, namespace in needs.rights:
            known = self._gate.known(session, actions, namespace)
            if not known:
                return known
        return True

    async def asked_rights(self, session: Session, needs: Needs) -> bool:
        """As ``rights``, asking the backend if needed; raises ``BackendUnavailable``."""
        for actions, namespace in needs.rights:
            if not await self._gate.allows(session, actions, namespace):
                return False
        return True

    def must_log_in(self, session: Session) -> bool:
        return self._gate.must_log_in(session)
