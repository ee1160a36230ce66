"""What is said of the machine on which the doctor runs."""

from __future__ import annotations

import resource

import pytest

from proxy.process.doctor.finding import Severity
from proxy.process.doctor.found import Found, Target
from proxy.process.doctor.machine_checks import open_files
from proxy.settings.table import Settings


@pytest.mark.parametrize(
    ("limit", "severity", "text"),
    [
        (resource.RLIM_INFINITY, Severity.OK, "no limit"),
        (280, Severity.OK, "280; 280 are enough"),
        (279, Severity.WARNING, "at most 279 here, enough for 99 clients, but max_connections is 100, which needs 280"),
    ],
)
def test_open_files(limit: int, severity: Severity, text: str) -> None:
    finding = open_files(Found(Settings(max_connections=100, workers=1), Target("mongodb://db", ()), file_limit=limit))
    assert (finding.severity, finding.text) == (severity, text)
    assert len(finding.remedies) == (severity is Severity.WARNING)
