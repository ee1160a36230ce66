"""Who has sent an admin command, as far as other connections of the same program are recognised by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from proxy.request.session import Session


@dataclass(frozen=True, slots=True)
class Administrator:
    """``greeting`` has the metadata of the program, if it has sent any; ``session`` is ``None`` in other workers.

    ``connection_id`` is unique among all workers.
    """

    connection_id: int
    peer: str
    greeting: bytes
    is_for_admin: bool
    has_client_metadata: bool
    session: Session | None = None

    @classmethod
    def of(cls, session: Session) -> Self:
        """The sender of a command on this connection."""
        return cls(
            session.connection_id,
            session.peer,
            session.upstream.hello,
            session.is_for_admin,
            session.has_client_metadata,
            session,
        )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """What ``as_document`` of another worker has returned."""
        return cls(
            document["connection"], document["peer"], document["greeting"], document["admin"], document["metadata"]
        )

    def as_document(self) -> dict[str, Any]:
        """For another worker."""
        return {
            "connection": self.connection_id,
            "peer": self.peer,
            "greeting": self.greeting,
            "admin": self.is_for_admin,
            "metadata": self.has_client_metadata,
        }

    def is_program_of(self, session: Session) -> bool:
        """Whether this connection is the administrator's, or a further one of the same program."""
        if session is self.session:
            return True
        if self.is_for_admin or not self.has_client_metadata:
            return False
        return session.peer == self.peer and session.upstream.hello == self.greeting
