"""What a command needs before it may begin, and whether it has that now.

A command that was parsed and one that was recognised by its bytes pass the same checks here: that its collection is
still what it was, that its client may do what the proxy does for it, and that no join of bucket parts keeps it out.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from catalog.namespaces import Namespace, VirtualCollection
from proxy.request import router
from proxy.request.authorisation import insert_actions
from proxy.request.command import Command
from proxy.request.command_table import ANY_MEMBER, INLINE, TABLE, Target
from proxy.request.exchange import Reader
from proxy.request.ports import Gate, Readers
from proxy.request.session import Session

Right: TypeAlias = tuple[tuple[str, ...], Namespace]
"""Actions on a collection."""

PREFERENCE: Final = b"$readPreference"
_FIND: Final = ("find",)
_OF_CURSORS: Final = frozenset({"getMore", "killCursors"})


class Needs:
    """What one command needs on its route."""

    __slots__ = ("asks_members", "collection", "namespace", "reader", "rights")

    def __init__(
        self,
        namespace: Namespace | None = None,
        collection: VirtualCollection | None = None,
        rights: tuple[Right, ...] = (),
        reader: Reader | None = None,
        *,
        asks_members: bool = False,
    ) -> None:
        """``namespace`` must be ``collection``, ``None`` for an ordinary one; without it, any name will do.

        ``rights`` are what the proxy does for the client, ``reader`` is what has to wait for joins. ``asks_members``:
        a member of the replica set is chosen for the command, so its way may be another each time.
        """
        self.namespace = namespace
        self.collection = collection
        self.rights = rights
        self.reader = reader
        self.asks_members = asks_members


class Requirements:
    """Says what commands need, and whether they have it."""

    def __init__(self, lookup: router.Lookup, gate: Gate, readers: Readers | None, *, has_members: bool) -> None:
        """``readers`` is ``None`` where no joins have to be waited for.

        ``has_members``: reads and cursors may have to go elsewhere than to the client's own connection.
        """
        self._lookup = lookup
        self._gate = gate
        self._readers = readers
        self.has_members = has_members

    def of(self, command: Command, route: router.Route) -> Needs:
        """What ``command`` needs when it takes this route."""
        asks_members = self.has_members and (
            command.name in _OF_CURSORS or (command.name in ANY_MEMBER and PREFERENCE in command.fields)
        )
        readers = self._readers
        if isinstance(route, router.Ingest):
            namespace = route.collection.namespace
            return Needs(namespace, route.collection, ((insert_actions(command), namespace),))
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
            reader = None if readers is None else readers.of_relayed(command)
            return Needs(named, None, (), reader, asks_members=asks_members)
        return Needs()

    def are_met(self, session: Session, needs: Needs) -> bool:
        """Whether a command that needs this may begin at once; false, too, if somebody has to be asked first."""
        if not self.is_as_it_was(needs):
            return False
        if needs.rights:
            if not self.rights(session, needs):
                return False
        elif self._gate.is_stranger(session):
            return False
        reader = needs.reader
        return reader is None or not reader.is_kept_out

    def is_as_it_was(self, needs: Needs) -> bool:
        """Whether the name is still what it was."""
        namespace = needs.namespace
        return namespace is None or self._lookup(namespace) is needs.collection

    def rights(self, session: Session, needs: Needs) -> bool | None:
        """Whether the client has the rights, from memory; ``None`` when the backend must be asked."""
        for actions, namespace in needs.rights:
            known = self._gate.known(session, actions, namespace)
            if not known:
                return known
        return True

    async def asked_rights(self, session: Session, needs: Needs) -> bool:
        """As ``rights``, asking the backend where needed; raises ``BackendUnavailable``."""
        for actions, namespace in needs.rights:
            if not await self._gate.allows(session, actions, namespace):
                return False
        return True

    def is_stranger(self, session: Session) -> bool:
        """See ``Gate``."""
        return self._gate.is_stranger(session)
