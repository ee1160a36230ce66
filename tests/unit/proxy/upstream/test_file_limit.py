"""How many clients a limit of open files allows, and which files are reserved."""

from __future__ import annotations

import errno
import resource

from proxy.upstream.file_limit import (
    OWN,
    RESERVED,
    clients_within,
    file_limit,
    files_for,
    is_out_of_files,
    is_reserved,
)


def test_as_many_clients_as_have_their_files() -> None:
    assert clients_within(files_for(100)) == 100
    assert clients_within(files_for(100) - 1) == 99
    assert clients_within(OWN) == clients_within(3) == 1
    assert clients_within(resource.RLIM_INFINITY) > 1_000_000


def test_the_last_files_are_reserved() -> None:
    assert [is_reserved(number, 100) for number in (99 - RESERVED, 100 - RESERVED, 99)] == [False, True, True]
    assert not is_reserved(1_000_000, resource.RLIM_INFINITY)


def test_errors_of_the_process_and_of_the_system() -> None:
    kinds = [OSError(errno.EMFILE, ""), OSError(errno.ENFILE, ""), ConnectionRefusedError(errno.ECONNREFUSED, "")]
    assert [is_out_of_files(each) for each in kinds] == [True, True, False]
    assert file_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
