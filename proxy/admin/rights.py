"""Who may use admin commands: the backend decides, as for everything else.

If the backend has access control, it is asked over the client's own connection which privileges the client has
(``proxy.request.authorisation``). Without access control anybody could do anything at the backend itself, but not
necessarily with the proxy, so admin commands are then accepted from this machine only, unless a setting allows others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol

from catalog.errors import UNAUTHORIZED, BackendUnavailable, CommandError
from catalog.namespaces import Namespace
from proxy.admin.table import Right
from proxy.observe.loopback import is_loopback
from proxy.request.authorisation import Rights
from proxy.request.command_table import ADMIN
from proxy.request.session import Session

Origin = Literal["loopback", "anywhere"]

_FIND: Final = ("find",)


class Privileges(Protocol):
    """The privileges of clients at the backend (``proxy.request.authorisation``)."""

    @property
    def is_enforced(self) -> bool:
        """Whether the backend has access control."""
        ...

    async def rights(self, session: Session) -> Rights:
        """The rights of this connection, asking the backend if needed; raises ``BackendUnavailable``."""
        ...


class AdminRights:
    """Decides who may use an admin command."""

    def __init__(self, privileges: Privileges, accepted_from: Callable[[], Origin]) -> None:
        """``accepted_from``: where admin commands come from if there is no access control."""
        self._privileges = privileges
        self._accepted_from = accepted_from

    async def check(self, session: Session, name: str, right: Right) -> None:
        """Raise ``CommandError`` 13 if the client may not use the command of this name."""
        if not self._privileges.is_enforced:
            if self._accepted_from() == "loopback" and not is_loopback(session.peer):
                raise CommandError(
                    UNAUTHORIZED,
                    "the backend has no access control, so admin commands are accepted from this machine only; "
                    'admin_without_login = "anywhere" allows them to everybody',
                )
            return
        if not session.identity:
            raise CommandError(UNAUTHORIZED, f"command {ADMIN} requires authentication")
        if right is not Right.ANYONE and not (await self._rights(session)).allow_on_cluster(right.actions):
            raise CommandError(
                UNAUTHORIZED,
                f'not authorized on admin to execute command {{ {ADMIN}: "{name}" }}: '
                f"it requires {' and '.join(right.actions)} on the cluster",
            )

    async def may_find(self, session: Session, namespace: Namespace) -> bool:
        """Whether the client may see measurements of this collection, and so its meta values."""
        return not self._privileges.is_enforced or (await self._rights(session)).allow(_FIND, namespace)

    async def _rights(self, session: Session) -> Rights:
        try:
            return await self._privileges.rights(session)
        except BackendUnavailable:
            # While the backend is down, what it has last said of this connection counts: an administrator who has
            # paused the clients must be able to go on.
            known = session.rights
            if known is None or known.identity != session.identity:
                raise
            return known.rights
