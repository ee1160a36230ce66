"""Errors that are used by all packages, and the names of the server's error codes.

There are four kinds, by who must act::

    CommandError          the client gets it as a command reply or a write error
    BackendUnavailable    a CommandError whose labels make drivers retry
    InvariantViolated     a bug in tsproxy: fail the bucket and its writers, keep running
    ProtocolError         (proxy.wire) the peer violated the protocol: close its connection
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INTERNAL_ERROR = 1
UNAUTHORIZED = 13
NAMESPACE_NOT_FOUND = 26
INVALID_OPTIONS = 72
WRITE_CONFLICT = 112
COMMAND_NOT_SUPPORTED = 115
UUID_MISMATCH = 361

CODE_NAMES: Mapping[int, str] = {
    1: "InternalError",
    2: "BadValue",
    6: "HostUnreachable",
    9: "FailedToParse",
    11: "UserNotFound",
    13: "Unauthorized",
    14: "TypeMismatch",
    15: "Overflow",
    16: "InvalidLength",
    17: "ProtocolError",
    18: "AuthenticationFailed",
    20: "IllegalOperation",
    22: "InvalidBSON",
    26: "NamespaceNotFound",
    27: "IndexNotFound",
    28: "PathNotViable",
    40: "ConflictingUpdateOperators",
    43: "CursorNotFound",
    48: "NamespaceExists",
    50: "MaxTimeMSExpired",
    56: "EmptyFieldName",
    59: "CommandNotFound",
    61: "ShardKeyNotFound",
    64: "WriteConcernFailed",
    66: "ImmutableField",
    67: "CannotCreateIndex",
    72: "InvalidOptions",
    73: "InvalidNamespace",
    79: "UnknownReplWriteConcern",
    85: "IndexOptionsConflict",
    86: "IndexKeySpecsConflict",
    89: "NetworkTimeout",
    91: "ShutdownInProgress",
    100: "UnsatisfiableWriteConcern",
    112: "WriteConflict",
    115: "CommandNotSupported",
    117: "ConflictingOperationInProgress",
    121: "DocumentValidationFailure",
    125: "CommandFailed",
    133: "FailedToSatisfyReadPreference",
    166: "CommandNotSupportedOnView",
    167: "OptionNotSupportedOnView",
    168: "InvalidPipelineOperator",
    186: "ClientMetadataCannotBeMutated",
    189: "PrimarySteppedDown",
    197: "InvalidIndexSpecificationOption",
    217: "IncompleteTransactionHistory",
    225: "TransactionTooOld",
    237: "CursorKilled",
    251: "NoSuchTransaction",
    256: "TransactionCommitted",
    262: "ExceededTimeLimit",
    263: "OperationNotSupportedInTransaction",
    276: "IndexBuildAborted",
    352: "UnsupportedOpQueryCommand",
    361: "CollectionUUIDMismatch",
    462: "IngressRequestRateLimitExceeded",
    9001: "SocketException",
    10003: "CannotGrowDocumentInCappedNamespace",
    10107: "NotWritablePrimary",
    10334: "BSONObjectTooLarge",
    11000: "DuplicateKey",
    11600: "InterruptedAtShutdown",
    11602: "InterruptedDueToReplStateChange",
    13388: "StaleConfig",
    13435: "NotPrimaryNoSecondaryOk",
    13436: "NotPrimaryOrSecondary",
}
"""Error code → name as servers report it in ``codeName``; other codes are ``Location<code>``."""


def code_name(code: int) -> str:
    """The ``codeName`` that a server sends with ``code``."""
    return CODE_NAMES.get(code, f"Location{code}")


class CommandError(Exception):
    """An error for the client, with the server's code and message.

    ``labels`` become ``errorLabels``; ``details`` are further fields of the reply or write error, in order.
    ``fails_command``: concerns a whole command. It is reported for single documents only if others are stored and no
    driver will send the command again. ``name``: the ``codeName`` that a server has sent, where it is not in
    ``CODE_NAMES``.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        labels: tuple[str, ...] = (),
        details: Mapping[str, Any] | None = None,
        fails_command: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(message)
        self.name = name or code_name(code)
        self.code = code
        self.message = message
        self.labels = labels
        self.details: Mapping[str, Any] = details or {}
        self.fails_command = fails_command

    def __str__(self) -> str:
        return f"{self.name} ({self.code}): {self.message}"

    def reply(self) -> dict[str, Any]:
        """The command reply (``ok: 0``) in the server's field order."""
        document: dict[str, Any] = {
            "ok": 0.0,
            "errmsg": self.message,
            "code": self.code,
            "codeName": self.name,
            **self.details,
        }
        if self.labels:
            document["errorLabels"] = list(self.labels)
        return document

    def write_error(self, index: int) -> dict[str, Any]:
        """The entry for ``writeErrors``, in the server's field order (W90)."""
        return {"index": index, "code": self.code, "errmsg": self.message, **self.details}


class BackendUnavailable(CommandError):
    """The backend cannot be reached, or the connection was lost before its reply; drivers may retry."""

    def __init__(self, message: str, *, code: int = 6, labels: tuple[str, ...] = ("RetryableWriteError",)) -> None:
        super().__init__(code, message, labels=labels, fails_command=True)


class Withheld(BackendUnavailable):
    """A command was not sent, because it was found that it may not be (``catalog.ports.MaySend``)."""

    def __init__(self) -> None:
        super().__init__("the command was not sent")


class Fenced(Withheld):
    """A command was not executed, as another process has taken over what this one had sent (``MaySend``)."""


class InvariantViolated(AssertionError):
    """An internal invariant was violated; never the client's fault."""
