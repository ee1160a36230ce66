"""The page of exit codes, from ``proxy/process/exit_codes.py``."""

from __future__ import annotations

from docs.generator.markdown import code, page, table
from proxy.process.exit_codes import MEANINGS, ExitCode

_INTRODUCTION = """
The exit codes of `tsproxy serve` and `tsproxy doctor` say what to do next. A problem that ends the program is one line
on standard error, and a JSON object with `exit_code` if [`log_format`](settings.md#log_format) is `json`. Details:
[serve](../operating.md#starting-and-stopping), [doctor](../operating.md#examining-a-backend), and
[import and export](../operating.md#importing-and-exporting), which use 3 for rows that are not valid.
"""


def exit_page() -> str:
    """The whole page."""
    rows = [[code(str(int(each))), MEANINGS[each]] for each in ExitCode]
    return "\n".join(
        [
            page("Exit codes", "proxy/process/exit_codes.py", _INTRODUCTION),
            table(["code", "meaning"], rows),
        ]
    )
