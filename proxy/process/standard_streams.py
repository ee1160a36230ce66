"""The standard streams of the process, which serves also where nobody reads them: closed, broken, or on a full disk."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed() -> None:
    """Open the null device for each standard stream that is closed.

    Otherwise a connection or a file would get its descriptor, and what is printed would go there. Call this before
    anything is opened.
    """
    for descriptor, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor, which is this one.
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            setattr(sys, name, open(opened, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as the process


def say(line: str) -> None:
    """Print a line for the user, if there is one."""
    try:
        click.echo(line)
    except OSError:
        drop_unwritten()


def drop_unwritten() -> None:
    """Send to the null device what a stream cannot write, so that the interpreter does not fail with it at its end."""
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
