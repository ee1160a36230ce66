"""Turns exceptions of the driver into error replies for clients."""

from __future__ import annotations

import os
import re
from typing import Any

from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError, ServerSelectionTimeoutError

from catalog.errors import BackendUnavailable, CommandError
from proxy.request.own_steps import client_message

_DUMP = re.compile(r" \(configured timeouts: [^)]*\)|,? ?Timeout: .*|, Topology Description: .*", re.DOTALL)
_ERRNO = re.compile(r"\[Errno (\d+)\] [^,]*?failed \([^)]*\)")

NOT_IN_TIME = ("the backend did not answer in time", 89)
"""Message and code of the error for a time-out."""


def plain_reason(message: str) -> str:
    """The message of a driver's exception, without its time limits and the description of the topology."""
    return _ERRNO.sub(lambda found: os.strerror(int(found[1])), _DUMP.sub("", message))


def command_error(error: PyMongoError, *, holds_data: bool = False) -> CommandError:
    """The error reply for a client when a request of the proxy's own driver failed.

    ``holds_data``: the request contained measurements or a query for them.
    """
    if error.timeout and not isinstance(error, ServerSelectionTimeoutError):
        # The time is the request's own; only the proxy sets a limit.
        return BackendUnavailable(NOT_IN_TIME[0], code=NOT_IN_TIME[1])
    labels: tuple[str, ...] = tuple(getattr(error, "_error_labels", ()))
    if isinstance(error, OperationFailure):
        details: dict[str, Any] = dict(error.details or {})
        code = error.code or 1
        return CommandError(
            code, client_message(code, str(details.get("errmsg", error)), holds_data=holds_data), labels=labels
        )
    if isinstance(error, ServerSelectionTimeoutError):
        return BackendUnavailable(f"no suitable backend server found in time: {plain_reason(str(error))}", code=133)
    if isinstance(error, ConnectionFailure):
        return BackendUnavailable(f"the connection to the backend was lost: {plain_reason(str(error))}")
    if type(error.__cause__).__module__.startswith("dns."):
        return BackendUnavailable(f"cannot resolve the backend's SRV record: {error}")
    # The text of an error that the driver made itself may quote what it was to send.
    reason = type(error).__name__ if holds_data else str(error)
    return CommandError(1, f"request to the backend failed: {reason}", labels=labels)
