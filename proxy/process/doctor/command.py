"""Runs ``tsproxy doctor``: examine, judge, print."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.observe import logs
from proxy.process.doctor.asking import examined
from proxy.process.doctor.checks import examination
from proxy.process.doctor.finding import exit_code_of
from proxy.process.doctor.report import as_json, as_text
from proxy.process.exit_codes import ExitCode
from proxy.process.last_resort import LEAVE_SECONDS, LastResort
from proxy.settings.table import Settings

LONGEST_SECONDS: Final = 90.0
"""Time after which the program ends, whatever does not: above the sum of the limits of all steps."""


def run(settings: Settings, say: Callable[[str], None], *, is_json: bool, strict: bool) -> ExitCode:
    """Examine the backend of these settings, and print the result with ``say``, which must not keep it back.

    Raises ``ConfigurationError`` if the settings name no backend, or not a valid one.
    """
    logs.configure("error", settings.log_format)  # standard output is for the result
    with LastResort() as last_resort:
        last_resort.within(LONGEST_SECONDS, ExitCode.TRY_AGAIN)
        return asyncio.run(_examine(settings, say, last_resort, is_json=is_json, strict=strict))


async def _examine(
    settings: Settings, say: Callable[[str], None], last_resort: LastResort, *, is_json: bool, strict: bool
) -> ExitCode:
    found = await examined(settings)
    result = examination(found)
    exit_code = exit_code_of(result.findings.values(), strict=strict)
    say((as_json if is_json else as_text)(found.target.uri, result, exit_code))
    # The interpreter waits for threads that resolve names.
    last_resort.within(LEAVE_SECONDS, exit_code)
    return exit_code
