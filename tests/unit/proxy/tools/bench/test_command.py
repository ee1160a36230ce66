"""Options that cannot be used are refused with a line and an exit code, before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.tools.bench.command import STOPPED, WRONG, bench_command

NOWHERE = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"
BOTH = ["--proxy", NOWHERE, "--direct", NOWHERE]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        ([], WRONG, "Missing option"),
        (BOTH, WRONG, "allow it with --allow-writes"),
        ([*BOTH, "--allow-writes"], STOPPED, "--proxy: cannot reach the server"),
        (["--proxy", "db:1", "--direct", NOWHERE, "--allow-writes"], WRONG, "--proxy: expected a connection string"),
        ([*BOTH, "--allow-writes", "--shape", "nonsense"], WRONG, "neither a shape"),
        ([*BOTH, "--allow-writes", "--database", "admin"], WRONG, "--database: 'admin'"),
        ([*BOTH, "--allow-writes", "--database", "a b"], WRONG, "--database: 'a b'"),
        ([*BOTH, "--allow-writes", "--json", "missing/figures.json"], WRONG, "--json: the directory of"),
        ([*BOTH, "--allow-writes", "--connections", "0"], WRONG, "--connections"),
    ],
)
def test_what_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], exit_code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(bench_command, arguments)
    assert ended.exit_code == exit_code, ended.output
    assert said in ended.output


def test_help_says_what_each_option_is() -> None:
    text = " ".join(CliRunner().invoke(bench_command, ["--help"]).output.split())
    for said in ("URI of a tsproxy.", "Length of a round.", "Rounds for each side.", "Shape of the documents."):
        assert said in text
