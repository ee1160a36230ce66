"""The program: mistakes become lines and exit codes, and signals wait only for ``serve``."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.support.proxy import tsproxy

SHOWS_MASK = """
import signal, sys
from proxy.process import cli, commands
def cli_of_commands(prog_name):
    print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
commands.cli = cli_of_commands
sys.argv[1:] = [{command!r}]
cli.main()
"""


@pytest.mark.parametrize(("command", "held"), [("serve", [signal.SIGHUP, signal.SIGUSR2]), ("import", [])])
def test_signals_are_held_back_for_the_proxy_only(command: str, held: list[signal.Signals]) -> None:
    shown = subprocess.check_output([sys.executable, "-c", SHOWS_MASK.format(command=command)], text=True, timeout=60)
    assert shown == f"{held}\n"


def test_a_mistake_is_a_line_and_an_exit_code() -> None:
    done = tsproxy("serve", "--max-connections", "0")
    assert done.returncode == 2
    assert "max_connections" in done.stderr
    assert "Traceback" not in done.stderr
