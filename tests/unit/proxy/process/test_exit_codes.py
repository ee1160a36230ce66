"""Which error ends the program with which code."""

from __future__ import annotations

import errno
import socket

import pytest

from catalog.errors import BackendUnavailable, CommandError
from proxy.process.embedded import EmbeddedFailed
from proxy.process.exit_codes import MEANINGS, ExitCode, cannot_listen, exit_code_of
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
        (cannot_listen("listen", HERE, OSError(errno.EADDRNOTAVAIL, "not here")), ExitCode.TRY_AGAIN),
        (cannot_listen("listen", HERE, OSError(errno.EACCES, "denied")), ExitCode.FIX_SETTINGS),
        (ConfigurationError(["wrong"]), ExitCode.FIX_SETTINGS),
        (CommandError(18, "wrong password"), ExitCode.FIX_BACKEND),
        (CommandError(13, "no account"), ExitCode.FIX_BACKEND),
    ],
    ids=str,
)
def test_code(error: Exception, code: ExitCode) -> None:
    assert exit_code_of(error) is code


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.EADDRINUSE, "on ('127.0.0.1', 1)"),
            "Address already in use; stop the other program or change x",
        ),
        (OSError(errno.EADDRNOTAVAIL, "on ('127.0.0.1', 1)"), "this machine does not have the address; change x, or"),
        (OSError(errno.EACCES, "on ('127.0.0.1', 1)"), "Permission denied"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (OSError("could not bind on any address"), "could not bind on any address"),
    ],
    ids=str,
)
def test_the_reason_is_told_with_its_own_remedy(error: OSError, said: str) -> None:
    message = str(cannot_listen("x", HERE, error))
    assert f"cannot listen on this address: {said}" in message
    assert message.count(HERE.host) == 1
    assert ("other program" in message) is (error.errno == errno.EADDRINUSE)


def test_the_code_of_a_bench_is_described() -> None:
    assert "`bench`" in MEANINGS[ExitCode.FIX_BACKEND]
