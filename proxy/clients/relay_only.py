"""The defaults of what the server needs from other rooms: with these, the proxy only relays."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.errors import CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.request.command import Command
from proxy.request.session import Session
from proxy.request.times import Times
from rewrite.plan import Effect


class NoNamespaces:
    """No namespace is virtual: for a proxy that only relays."""

    def lookup(self, namespace: Namespace) -> None:
        return None

    async def resolve(self, namespace: Namespace) -> None:
        return None


async def no_translate(session: Session, command: Command, collection: VirtualCollection | None, times: Times) -> bytes:
    """For a proxy that only relays; see ``Translator``."""
    raise CommandError(59, f"no such command: '{command.name}'")


def no_effects(effect: Effect) -> None:
    """For a proxy that only relays; see ``Effects``."""


async def no_others(effects: Sequence[Effect]) -> None:
    """For a proxy that knows of no others; see ``Announce``."""


class OpenGate:
    """For a backend without access control."""

    def must_log_in(self, session: Session) -> bool:
        return False

    def known(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool:
        return True

    async def allows(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool:
        return True


def no_login() -> bool:
    """For a backend without access control."""
    return False


def no_cursors(command: Command) -> bool:
    """For a proxy that only relays."""
    return False
