"""How the program says why it ends: one line for each problem, in the format of its logs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click
import structlog

from proxy.observe import logs
from proxy.process.exit_codes import ExitCode
from proxy.settings.redaction import redact_uri


def say(problems: Sequence[str], exit_code: ExitCode, cause: Exception | None = None) -> None:
    """Print on standard error: JSON if the logs are JSON."""
    for problem in problems:
        if logs.is_json():
            structlog.get_logger(__name__).critical(redact_uri(problem), exit_code=int(exit_code), exc_info=cause)
        else:
            with suppress(OSError):  # the exit code says it, too
                click.echo(f"tsproxy: {redact_uri(problem)}", err=True)
