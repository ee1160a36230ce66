"""Prints an examination: as aligned text for people, or as JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from importlib import metadata
from typing import Final

from proxy.process.doctor.checks import Examination
from proxy.process.doctor.finding import Finding, Kind, Severity
from proxy.process.exit_codes import ExitCode
from proxy.settings.redaction import redact_uri

SCHEMA: Final = 1
"""The number of the form of the JSON; a field that goes or changes its meaning raises it."""

_PROMPTS: Final = {Kind.MONGOSH: "mongosh> ", Kind.SETTING: "setting: ", Kind.ADVICE: "-> "}


def as_text(uri: str, examination: Examination, exit_code: ExitCode) -> str:
    """A line for each check, its remedies indented below it, and a summary."""
    width = max(map(len, [*examination.findings, *examination.not_made]), default=0)
    lines = [f"tsproxy {metadata.version('tsproxy')} examines {uri}", ""]
    for name, finding in examination.findings.items():
        lines.append(f"{finding.severity.value:<7}  {name:<{width}}  {finding.text}")
        lines += [f"{'':<9}{_PROMPTS[remedy.kind]}{remedy.text}" for remedy in finding.remedies]
    lines += ["", f"{_summary(examination)}; exit code {exit_code.value}"]
    return "".join(f"{_printable(line)}\n" for line in lines)


def as_json(uri: str, examination: Examination, exit_code: ExitCode) -> str:
    """One object; docs/operating.md describes its fields."""
    report = {
        "schema": SCHEMA,
        "tsproxy": metadata.version("tsproxy"),
        "backend": redact_uri(uri),
        "exit_code": exit_code.value,
        "checks": [_entry(name, finding) for name, finding in examination.findings.items()],
        "not_made": list(examination.not_made),
    }
    return json.dumps(report, indent=2) + "\n"


def _entry(name: str, finding: Finding) -> dict[str, object]:
    remedies = [{"kind": each.kind.value, "text": redact_uri(each.text)} for each in finding.remedies]
    return {
        "check": name,
        "severity": finding.severity.value,
        "text": redact_uri(finding.text),
        "remedies": remedies,
    }


def _summary(examination: Examination) -> str:
    counted = Counter(finding.severity for finding in examination.findings.values())
    parts = [
        f"{counted[severity]} {severity.value}{'' if counted[severity] == 1 else 's'}"
        for severity in (Severity.PROBLEM, Severity.WARNING, Severity.NOTE)
        if counted[severity]
    ]
    text = ", ".join(parts) or "all is well"
    return f"{text}; not examined: {', '.join(examination.not_made)}" if examination.not_made else text


def _printable(line: str) -> str:
    """Without secrets, and without control characters, which names from the backend may contain."""
    return "".join(each if each.isprintable() else "?" for each in redact_uri(line))
