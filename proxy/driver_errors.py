"""What the driver's exceptions mean to a client of the proxy."""

from __future__ import annotations

from typing import Any

from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError, ServerSelectionTimeoutError

from catalog.errors import BackendUnavailable, CommandError


def command_error(error: PyMongoError) -> CommandError:
    """The error reply that tells a client what the service client met."""
    labels: tuple[str, ...] = tuple(getattr(error, "_error_labels", ()))
    if isinstance(error, OperationFailure):
        details: dict[str, Any] = dict(error.details or {})
        return CommandError(error.code or 1, str(details.get("errmsg", error)), labels=labels)
    if isinstance(error, ServerSelectionTimeoutError):
        return BackendUnavailable(f"no backend server could be reached in time: {error}", code=133)
    if isinstance(error, ConnectionFailure):
        return BackendUnavailable(f"the connection to the backend was lost: {error}")
    return CommandError(1, f"the backend could not be asked: {error}", labels=labels)
