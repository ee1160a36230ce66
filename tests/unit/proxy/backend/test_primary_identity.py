"""Another primary, and the same one after another election, are noticed."""

from __future__ import annotations

from bson import ObjectId

from proxy.backend.primary_identity import PrimaryIdentity

PROCESS, OTHER = ObjectId(), ObjectId()


def test_another_process_or_another_election_is_noticed() -> None:
    identity, changes = PrimaryIdentity(), []
    identity.on_change = lambda: changes.append(1)
    for process, election, changed in (
        (PROCESS, 1, 0),
        (PROCESS, 1, 0),
        (PROCESS, 2, 1),
        (OTHER, 2, 2),
        (OTHER, 2, 2),
        (PROCESS, 2, 3),
    ):
        identity.greeted({"topologyVersion": {"processId": process, "counter": 1}, "electionId": election})
        assert len(changes) == changed


def test_old_servers_tell_nothing() -> None:
    identity = PrimaryIdentity()
    identity.on_change = lambda: 1 / 0  # type: ignore[assignment, return-value]
    identity.greeted({})
    identity.greeted({"ok": 1.0})
