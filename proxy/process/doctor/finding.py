"""What the doctor reports: findings, how serious they are, and what fixes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from proxy.process.exit_codes import ExitCode


class Severity(Enum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    """Good to know; the proxy works as intended without a change."""
    WARNING = "warning"
    """The proxy works, but not as intended, or not everywhere, or not for long."""
    PROBLEM = "problem"
    """The proxy cannot serve clients until this is fixed."""


class Kind(Enum):
    """Where a remedy is applied."""

    MONGOSH = "mongosh"
    """A line for mongosh, connected to the backend as an administrator."""
    SETTING = "setting"
    """A setting of the proxy, or a part of its connection string."""
    ADVICE = "advice"
    """Something to do elsewhere."""


class Remedy(NamedTuple):
    """One step that fixes what was found."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; ``exit_code`` is that of the program if this is the most urgent problem."""

    severity: Severity
    text: str
    remedies: tuple[Remedy, ...] = ()
    exit_code: ExitCode = ExitCode.STOPPED


def ok(text: str) -> Finding:
    """Everything is as it should be."""
    return Finding(Severity.OK, text)


def note(text: str, *remedies: Remedy) -> Finding:
    """Something that is good to know."""
    return Finding(Severity.NOTE, text, remedies)


def warning(text: str, *remedies: Remedy) -> Finding:
    """Something that should be changed."""
    return Finding(Severity.WARNING, text, remedies)


def unreachable(text: str, *remedies: Remedy) -> Finding:
    """A problem that may pass without a change at the proxy."""
    return Finding(Severity.PROBLEM, text, remedies, ExitCode.TRY_AGAIN)


def wrong_setting(text: str, *remedies: Remedy) -> Finding:
    """A problem of the proxy's settings."""
    return Finding(Severity.PROBLEM, text, remedies, ExitCode.FIX_SETTINGS)


def wrong_backend(text: str, *remedies: Remedy) -> Finding:
    """A problem of the backend, or of the proxy's account there."""
    return Finding(Severity.PROBLEM, text, remedies, ExitCode.FIX_BACKEND)


def mongosh(line: str) -> Remedy:
    """A line for mongosh."""
    return Remedy(Kind.MONGOSH, line)


def setting(text: str) -> Remedy:
    """A change of the proxy's settings."""
    return Remedy(Kind.SETTING, text)


def advice(text: str) -> Remedy:
    """Something to do elsewhere."""
    return Remedy(Kind.ADVICE, text)


def on_database(database: str, method: str, *arguments: Any) -> str:
    """A call of a method of a database as a line for mongosh, whatever its names contain."""
    return f"db.getSiblingDB({literal(database)}).{method}({', '.join(map(literal, arguments))})"


def literal(value: Any) -> str:
    """A value of names, numbers, lists and objects as mongosh reads it."""
    return json.dumps(value)


_URGENCY = (ExitCode.FIX_SETTINGS, ExitCode.FIX_BACKEND, ExitCode.TRY_AGAIN)
"""What must be fixed comes before what may pass."""


def exit_code_of(findings: Iterable[Finding], *, strict: bool) -> ExitCode:
    """The program's exit code; with ``strict``, a warning is a problem of the backend."""
    findings = tuple(findings)
    codes = {finding.exit_code for finding in findings if finding.severity is Severity.PROBLEM}
    if strict and any(finding.severity is Severity.WARNING for finding in findings):
        codes.add(ExitCode.FIX_BACKEND)
    return next((code for code in _URGENCY if code in codes), ExitCode.STOPPED)
