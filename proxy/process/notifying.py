"""Tells a service manager what the process does: the protocol of systemd's ``Type=notify`` (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, MutableMapping
from typing import Final

import structlog

log = structlog.get_logger(__name__)

_VARIABLE = "NOTIFY_SOCKET"

READY_SECONDS: Final = 0.5
"""How long a service manager that is busy is waited for: without ``READY=1``, the unit would be starting for ever."""
_READY: Final = "READY=1"


class Notifier:
    """Sends notices to the socket that the environment names; without one, it does nothing."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Removes the variable, which is not for child processes."""
        address = environment.pop(_VARIABLE, "")
        # A name that begins with @ is one in the abstract namespace.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._is_ready = False

    def ready(self) -> None:
        """Clients are served."""
        self._is_ready = True
        self._send(f"{_READY}\nSTATUS=serving clients", READY_SECONDS)

    def waits(self, reason: str) -> None:
        """Clients cannot be served yet."""
        self._send(f"STATUS={reason.partition(os.linesep)[0]}")

    def stopping(self) -> None:
        """The process finishes what clients have in progress, and ends."""
        self._is_ready = False
        self._send("STOPPING=1\nSTATUS=stopping")

    def reloading(self, reload: Callable[[], None]) -> None:
        """Reload the settings, and tell the beginning and the end if clients are served.

        The end of a reload says that the process is ready, which is wrong while it starts or stops.
        """
        if not self._is_ready:
            reload()
            return
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            reload()
        finally:
            self._send(_READY, READY_SECONDS)

    def _send(self, text: str, wait_seconds: float = 0.0) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(wait_seconds)
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            reason = error.strerror or "it does not read"
            log.warning("cannot notify the service manager", socket=self._address, reason=reason)
