"""The exit codes of the program, and the code for each error.

They show a supervisor whether another start may succeed (``deploy/tsproxy.service``, docs/operating.md).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from catalog.errors import CommandError
from proxy.backend.first_answer import may_pass
from proxy.settings.config import ConfigurationError
from proxy.settings.table import Address


class ExitCode(IntEnum):
    """What a supervisor should do next."""

    STOPPED = 0
    TRY_AGAIN = 1
    """Nothing at the proxy is wrong: the backend is down, the port or the data directory is in use."""
    FIX_SETTINGS = 2
    """Also the code of the command line's parser."""
    FIX_BACKEND = 3
    """The backend refuses the proxy's account, or cannot be used at all; for ``bench``, rows are missing."""


MEANINGS: Final[Mapping[ExitCode, str]] = {
    ExitCode.STOPPED: "Stopped cleanly. A restart is not needed.",
    ExitCode.TRY_AGAIN: (
        "The backend cannot be reached (`fail_fast`), the port or the data directory is in use, the embedded mongod "
        "does not start, or there was an internal error. Start again."
    ),
    ExitCode.FIX_SETTINGS: (
        "Settings, certificates, directories or options of the command line are wrong. Fix them first."
    ),
    ExitCode.FIX_BACKEND: (
        "The backend refuses the login of the proxy's account, or cannot be used. Fix the backend or the account "
        "first. `bench`: acknowledged rows are missing or differ."
    ),
}
"""What each code means and what to do, for the documents."""


class ProcessFailed(Exception):
    """Another process of this program cannot go on; ``problems`` has a line for each reason."""

    def __init__(self, problems: Sequence[str], exit_code: ExitCode) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        self.exit_code = exit_code


class AddressInUse(ConfigurationError):
    """The address is valid, but another program has it now, or the machine does not have it yet."""


_PASSING: Final[Mapping[int, str]] = {
    errno.EADDRINUSE: "Address already in use; stop the other program or change {name}",
    errno.EADDRNOTAVAIL: "this machine does not have the address; change {name}, or configure the network",
}
"""Reason and remedy for errors that a later start may not have."""


def cannot_listen(name: str, address: Address, error: OSError) -> ConfigurationError:
    """The error when an address of the settings cannot be listened on."""
    number = error.errno or 0
    passing = _PASSING.get(number)
    if passing is not None:
        return AddressInUse([f"{name} = '{address}': cannot listen on this address: {passing.format(name=name)}"])
    # What asyncio says repeats the address; a name that is not found has a negative number.
    reason = os.strerror(number) if number > 0 else error.strerror or str(error)
    return ConfigurationError([f"{name} = '{address}' is not valid: cannot listen on this address: {reason}"])


def exit_code_of(error: Exception) -> ExitCode:
    """The exit code for an error that ends the program."""
    if isinstance(error, ProcessFailed):
        return error.exit_code
    if isinstance(error, AddressInUse):
        return ExitCode.TRY_AGAIN
    if isinstance(error, ConfigurationError):
        return ExitCode.FIX_SETTINGS
    if isinstance(error, CommandError) and not may_pass(error):
        return ExitCode.FIX_BACKEND
    return ExitCode.TRY_AGAIN
