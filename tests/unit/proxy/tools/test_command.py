"""Options that contradict each other are refused with a line and an exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.tools.command import AGAIN, BAD_ROW, WRONG, export_command, import_command

NOWHERE = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["--into", "db.c"], WRONG, "name either a file or a collection"),
        (["FILE", "--into", "db.c", "--from", "a.b"], WRONG, "name either a file or a collection"),
        (["FILE", "--into", "c"], WRONG, "is not DATABASE.COLLECTION"),
        (["system.buckets.x.bson", "--into", "db.c"], WRONG, "restore it with mongorestore"),
        (["FILE", "--into", "db.c"], AGAIN, "run the same command again"),
        # The server is not asked for anything, so nothing was created for a file that is something else.
        (["README.md", "--into", "db.c", "--time-field", "t"], WRONG, "document 1 at byte 0 is damaged"),
        (["bad.json", "--into", "db.c", "--time-field", "t"], BAD_ROW, "line 1: "),
    ],
)
def test_imports_that_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], exit_code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {"FILE": "{}", "system.buckets.x.bson": "{}", "README.md": "# A document", "bad.json": '{"a": }'}
    for name, text in texts.items():
        Path(name).write_text(text)
    ended = CliRunner().invoke(import_command, [*arguments, "--uri", NOWHERE])
    assert ended.exit_code == exit_code, ended.output
    assert said in ended.output


def test_an_export_replaces_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bson"
    path.write_text("mine")
    ended = CliRunner().invoke(export_command, ["db.c", str(path), "--uri", NOWHERE])
    assert (ended.exit_code, path.read_text()) == (WRONG, "mine")
