"""Windows, rejects and the state after each; ``tests/clients/test_import_export.py`` kills imports."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bson import json_util

from proxy.tools import state
from proxy.tools.files import JsonFile
from proxy.tools.grouping import Sendable
from proxy.tools.importing import BadRowFound, ImportOptions, run
from proxy.tools.loading import Sent
from proxy.tools.state import ImportState
from proxy.tools.targets import Fields


class Lost(Exception):
    pass


class Remembering:
    """Keeps rows as a collection would; may end in the middle of a window."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.windows: list[int] = []
        self.looked = 0
        self.ends_after = -1

    def send(self, rows: Sequence[Sendable]) -> Callable[[], Sent]:
        self.windows.append(len(rows))

        def result() -> Sent:
            for row in rows:
                if len(self.stored) == self.ends_after:
                    raise Lost
                self.stored.append(row.id)
            return Sent(stored=len(rows))

        return result

    def missing(self, rows: Sequence[Sendable]) -> tuple[list[Sendable], int]:
        self.looked += 1
        left = [row for row in rows if row.id not in self.stored]
        return left, len(rows) - len(left)


def lines(count: int, bad: Sequence[int] = ()) -> str:
    good = json_util.dumps({"t": json_util.loads('{"$date": 5}')})
    return "".join(f"{'nonsense' if number in bad else good}\n" for number in range(1, count + 1))


def importing(tmp_path: Path, text: str, loader: Any, **options: Any) -> ImportState:
    path = tmp_path / "rows.json"
    path.write_text(text)
    source, state_file = JsonFile(path), tmp_path / "state"
    begun = state.load(state_file, source.fingerprint(), "db.c") or ImportState.new(source.fingerprint(), "db.c")
    return run(source, loader, Fields(b"t", None), begun, ImportOptions(state_file, window_rows=10, **options))


def test_windows_are_sent_in_order(tmp_path: Path) -> None:
    loader = Remembering()
    done = importing(tmp_path, lines(25), loader)
    assert (loader.windows, done.stored, done.entries, done.is_finished, loader.looked) == (
        [10, 10, 5],
        25,
        25,
        True,
        0,
    )


@pytest.mark.parametrize("ends_after", [0, 3, 10, 14, 24])
def test_an_import_goes_on_and_looks_for_the_rows_of_one_window(tmp_path: Path, ends_after: int) -> None:
    loader = Remembering()
    loader.ends_after = ends_after
    with pytest.raises(Lost):
        importing(tmp_path, lines(25), loader)
    loader.ends_after = -1
    done = importing(tmp_path, lines(25), loader)
    assert (len(loader.stored), len(set(loader.stored))) == (25, 25)
    assert (done.stored + done.duplicates, done.duplicates, loader.looked) == (25, ends_after % 10, 1)


def test_the_first_bad_row_stops_unless_rows_may_be_rejected(tmp_path: Path) -> None:
    loader = Remembering()
    text = lines(25, bad=(13, 25))
    with pytest.raises(BadRowFound, match=r"^line 13: "):
        importing(tmp_path, text, loader)
    assert len(loader.stored) == 10
    rejects = tmp_path / "rejects"
    done = importing(tmp_path, text, loader, rejects=rejects)
    assert (len(loader.stored), done.rejected, done.stored) == (23, 2, 23)
    told = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [(each["line"], each["row"]) for each in told] == [(13, "nonsense"), (25, "nonsense")]


def test_rejects_are_not_doubled(tmp_path: Path) -> None:
    loader, rejects = Remembering(), tmp_path / "rejects"
    loader.ends_after = 15
    with pytest.raises(Lost):
        importing(tmp_path, lines(25, bad=(2, 13)), loader, rejects=rejects)
    rejects.write_text(rejects.read_text() + "of a window that is repeated\n")
    loader.ends_after = -1
    importing(tmp_path, lines(25, bad=(2, 13)), loader, rejects=rejects)
    assert [json.loads(line)["line"] for line in rejects.read_text().splitlines()] == [2, 13]


def test_duplicates_are_looked_for_on_request(tmp_path: Path) -> None:
    loader = Remembering()
    importing(tmp_path, lines(25), loader, looks_for_duplicates=True)
    assert loader.looked == 3
