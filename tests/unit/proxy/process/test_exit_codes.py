"""Which error ends the program with which code."""

from __future__ import annotations

import errno

import pytest

from catalog.errors import BackendUnavailable, CommandError
from proxy.process.embedded import EmbeddedFailed
from proxy.process.exit_codes import ExitCode, cannot_listen, exit_code_of
from proxy.settings.config import ConfigurationError
from proxy.settings.table import Address

HERE = Address("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BackendUnavailable("down"), ExitCode.TRY_AGAIN),
        (EmbeddedFailed("in use"), ExitCode.TRY_AGAIN),
        (cannot_listen("listen", HERE, OSError(errno.EADDRINUSE, "in use")), ExitCode.TRY_AGAIN),
        (RuntimeError("a bug"), ExitCode.TRY_AGAIN),
        (cannot_listen("listen", HERE, OSError(errno.EACCES, "denied")), ExitCode.FIX_SETTINGS),
        (ConfigurationError(["wrong"]), ExitCode.FIX_SETTINGS),
        (CommandError(18, "wrong password"), ExitCode.FIX_BACKEND),
        (CommandError(13, "no account"), ExitCode.FIX_BACKEND),
    ],
    ids=str,
)
def test_code(error: Exception, code: ExitCode) -> None:
    assert exit_code_of(error) is code
