"""The state file is replaced as a whole, and belongs to one import."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.tools import state
from proxy.tools.state import ImportState, WrongState

SOURCE = {"file": "a.json", "size": 5}


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert state.load(path, SOURCE, "db.c") is None
    begun = ImportState.new(SOURCE, "db.c")
    later = state.replace(begun, mark={"byte": 7}, entries=3, under_way=2)
    state.save(path, begun)
    state.save(path, later)
    assert state.load(path, SOURCE, "db.c") == later
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]


def test_made_ids_are_those_of_the_import() -> None:
    one, other = ImportState.new(SOURCE, "db.c"), ImportState.new(SOURCE, "db.c")
    assert len(one.made_id(5)) == 12
    assert len({one.made_id(0), one.made_id(1), other.made_id(0)}) == 3


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 2}', '{"version": 1, "x": 1}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(WrongState, match="is not the state file of an import"):
        state.load(path, SOURCE, "db.c")


def test_another_source_or_target_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state.save(path, ImportState.new(SOURCE, "db.c"))
    for source, target in (({**SOURCE, "size": 6}, "db.c"), (SOURCE, "db.d")):
        with pytest.raises(WrongState, match=r"belongs to the import of a\.json into db\.c"):
            state.load(path, source, target)
