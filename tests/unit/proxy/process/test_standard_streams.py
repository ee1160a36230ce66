"""The standard streams of a process that nobody reads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from proxy.process.exit_codes import ExitCode

SAYS = "from proxy.process import standard_streams as streams; streams.open_closed(); streams.say('ready')"
FIRST_DESCRIPTOR = "; import os, sys; descriptor = os.open('/', os.O_RDONLY); streams.say('more'); "
PROGRAM = f"{SAYS}{FIRST_DESCRIPTOR}print('log', file=sys.stderr); sys.exit(7 if descriptor > 2 else 1)"


@pytest.mark.parametrize("where", [">/dev/full", ">&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-", "2>&-", ">/dev/null"])
def test_what_is_printed_does_not_end_the_process(where: str) -> None:
    """Its exit code is its own, and nothing that it opens takes the place of a stream."""
    command = ["/bin/sh", "-c", f'exec "$0" -c "$1" {where}', sys.executable, PROGRAM]
    assert subprocess.run(command, timeout=20, check=False).returncode == 7


def test_a_reader_that_has_gone_is_no_error() -> None:
    with subprocess.Popen([sys.executable, "-c", f"input(); {PROGRAM}"], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.communicate(b"\n", timeout=20)
    assert process.returncode == 7


def test_what_can_be_written_is() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], timeout=20, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "ready\nmore\n", "log\n")


def test_problems_that_cannot_be_written_do_not_change_the_exit_code() -> None:
    code = "import sys; from proxy.process.cli import main; sys.argv[1:] = ['serve', '--workers', '0']; main()"
    command = ["/bin/sh", "-c", 'exec "$0" -c "$1" 2>/dev/full', sys.executable, code]
    assert subprocess.run(command, timeout=20, check=False).returncode == ExitCode.FIX_SETTINGS
