"""Applies the effects of commands to the catalog and to the known namespaces, here and in other processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from catalog.catalog import BucketCatalog
from catalog.commit.committer import Committer
from catalog.namespaces import Namespace
from proxy.backend.namespace_registry import NamespaceRegistry
from proxy.backend.parts.direct_writes import DirectWrites
from proxy.clients.ruled_creation import RuledCreation
from proxy.peers.change import Change
from proxy.peers.changes import Changes
from rewrite.plan import ClearBuckets, DropNamespace, Effect, ForgetNamespace


class CatalogEffects:
    """Applies the effects of commands to the catalog and to the known namespaces (W72)."""

    def __init__(
        self,
        catalog: BucketCatalog,
        committer: Committer,
        registry: NamespaceRegistry,
        direct_writes: DirectWrites,
        ruled: RuledCreation | None = None,
    ) -> None:
        self._catalog = catalog
        self._committer = committer
        self._registry = registry
        self._direct_writes = direct_writes
        self._ruled = ruled
        self._changes: Changes | None = None

    def tell(self, changes: Changes) -> None:
        """Tell other processes, too."""
        self._changes = changes

    def __call__(self, effect: Effect) -> None:
        """One effect of a plan."""
        match effect:
            case ClearBuckets():
                self.clear(effect.namespace, effect.bucket_ids)
            case ForgetNamespace():
                self.forget(effect.namespace)
            case DropNamespace():
                self.drop(effect.namespace)
            case _:
                assert_never(effect)

    async def announce(self, effects: Sequence[Effect]) -> None:
        """Tell the other processes which definitions have changed; wait, for a short time, until they know."""
        if self._changes is None:
            return
        for effect in effects:
            if not isinstance(effect, ClearBuckets):
                self._changes.tell(effect.namespace.logical)
        await self._changes.told()

    def changed_elsewhere(self, change: Change) -> None:
        """Another process has changed something."""
        if change.is_extended_range:
            self._registry.note_extended_range(change.namespace)
        else:
            self.forget(change.namespace)

    def clear(self, namespace: Namespace, bucket_ids: tuple[bytes, ...] | None) -> None:
        """Remove these buckets, or all of the collection, from the catalog."""
        self._direct_writes.note(namespace.logical)
        self._catalog.clear(namespace.logical, bucket_ids)
        self._committer.kick()

    def forget(self, namespace: Namespace) -> None:
        """Forget the options of the collection, or of a whole database, so that they are read again."""
        self._registry.forget(namespace)
        if self._ruled is not None:
            self._ruled.forgotten(namespace)

    def drop(self, namespace: Namespace) -> None:
        """Remove the collection, or a whole database, with its buckets and counters."""
        self.forget(namespace)
        if namespace.collection:
            self._catalog.drop(namespace.logical)
        else:
            self._catalog.drop_database(namespace.database)
        self._committer.kick()
