"""Fatal errors, for people and for programs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
from proxy.observe import logs
from proxy.process import fatal
from proxy.process.exit_codes import ExitCode
logs.configure("error", {!r})
fatal.say(["cannot reach mongodb://u:secret@h/", "two"], ExitCode.FIX_BACKEND)
"""


@pytest.mark.parametrize("form", ["console", "json"])
def test_one_line_for_each_problem(form: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(form)], check=True, timeout=60, text=True, capture_output=True
    )
    assert "secret" not in done.stderr
    lines = done.stderr.splitlines()
    if form == "console":
        assert lines == ["tsproxy: cannot reach mongodb://u:***@h/", "tsproxy: two"]
    else:
        assert [json.loads(line)["exit_code"] for line in lines] == [3, 3]
