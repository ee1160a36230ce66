"""Turns exceptions of the driver into error replies for clients."""

from __future__ import annotations

from typing import Any

from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError, ServerSelectionTimeoutError

from catalog.errors import BackendUnavailable, CommandError


def command_error(error: PyMongoError) -> CommandError:
    """The error reply for a client when a request of the proxy's own driver failed."""
    labels: tuple[str, ...] = tuple(getattr(error, "_error_labels", ()))
    if isinstance(error, OperationFailure):
        details: dict[str, Any] = dict(error.details or {})
        return CommandError(error.code or 1, str(details.get("errmsg", error)), labels=labels)
    if isinstance(error, ServerSelectionTimeoutError):
        return BackendUnavailable(f"no suitable backend server found in time: {error}", code=133)
    if isinstance(error, ConnectionFailure):
        return BackendUnavailable(f"the connection to the backend was lost: {error}")
    if type(error.__cause__).__module__.startswith("dns."):
        return CommandError(1, f"cannot resolve the backend's SRV record: {error}")
    return CommandError(1, f"request to the backend failed: {error}", labels=labels)
