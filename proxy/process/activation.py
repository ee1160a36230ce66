"""Sockets that a service manager has opened for this process: the protocol of systemd's socket activation.

``LISTEN_FDS`` is their number, from file descriptor 3 on, ``LISTEN_FDNAMES`` has a name for each, which is the setting
that a socket stands for, and ``LISTEN_PID`` says for which process they are (sd_listen_fds(3)).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from proxy.process.notifying import Notifier
from proxy.settings.config import Address, ConfigurationError, LoadedSettings

FIRST_DESCRIPTOR: Final = 3
NAMES: Final = ("listen", "admin_listen", "status_listen")
"""The settings whose addresses can be replaced by sockets."""
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
_REMEDY: Final = "set FileDescriptorName= in the socket unit to one of " + ", ".join(NAMES)

GivenSockets = Mapping[str, tuple[socket.socket, ...]]
"""The sockets by the name of their setting; there may be several for one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How this process was launched: with which sockets, and who is told what it does."""

    given: GivenSockets
    notifier: Notifier
    ignored: str = ""
    """Why sockets that the environment announces are not used; ``""`` if they are, or if there are none."""

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self:
        """By a service manager, if the environment says so; raises ``ConfigurationError``."""
        ignored = for_another_process(environment)
        return cls(given_sockets(environment), Notifier(environment), ignored)


def for_another_process(environment: Mapping[str, str]) -> str:
    """Why the sockets in the environment are not for this process; ``""`` if they are, or if there are none."""
    pid, count = (environment.get(name, "") for name in _VARIABLES[:2])
    if not count.isdecimal() or count == "0" or pid == str(os.getpid()):
        return ""
    return f"LISTEN_PID = {pid!r} is not this process, which is {os.getpid()}"


def given_sockets(environment: MutableMapping[str, str]) -> GivenSockets:
    """The sockets for this process, which are not inherited further; none if nobody has opened any.

    Removes the variables, which are not for child processes. Raises ``ConfigurationError``.
    """
    ignored = for_another_process(environment)
    _, count, names = (environment.pop(name, "") for name in _VARIABLES)
    if ignored or not count.isdecimal() or count == "0":
        return {}
    named = names.split(":") if names else []
    descriptors = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))
    if len(named) != len(descriptors):
        raise ConfigurationError(
            [f"LISTEN_FDNAMES = {names!r} is not valid: expected {count} names, as LISTEN_FDS says; {_REMEDY}"]
        )
    found: dict[str, tuple[socket.socket, ...]] = {}
    for descriptor, name in zip(descriptors, named, strict=True):
        found[name] = (*found.get(name, ()), _socket(descriptor, name))
    return found


def _socket(descriptor: int, name: str) -> socket.socket:
    if name not in NAMES:
        raise ConfigurationError([f"LISTEN_FDNAMES: {name!r} is not the name of a listener: {_REMEDY}"])
    try:
        os.set_inheritable(descriptor, False)
        made = socket.socket(fileno=descriptor)
        is_listening = made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        problem = f"LISTEN_FDS: file descriptor {descriptor} ({name}) cannot be used: {error.strerror}"
        raise ConfigurationError([problem]) from None
    if made.family not in (socket.AF_INET, socket.AF_INET6) or not is_listening:
        raise ConfigurationError(
            [f"LISTEN_FDS: the socket for {name} is not one that listens on ADDRESS:PORT; set ListenStream= to that"]
        )
    return made


def with_addresses(loaded: LoadedSettings, given: GivenSockets) -> LoadedSettings:
    """The settings with the addresses of the sockets that were given."""
    addresses: dict[str, Any] = {name: Address(*sockets[0].getsockname()[:2]) for name, sockets in given.items()}
    origins = dict.fromkeys(addresses, "socket of the service manager")
    return replace(loaded, settings=replace(loaded.settings, **addresses), origins={**loaded.origins, **origins})
