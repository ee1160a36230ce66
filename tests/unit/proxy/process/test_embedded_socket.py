"""Where the Unix socket of the embedded mongod can be."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.process.embedded_socket import SocketDirectory


@pytest.fixture
def short() -> Iterator[Path]:
    """Where temporary files are; the directories of tests have long paths themselves."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def data(tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory whose path is too long for a socket; others are made in ``short``."""
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    long = tmp_path / ("long" * 30)
    long.mkdir()
    return long


def found(data: Path) -> SocketDirectory:
    directory = SocketDirectory.of(data)
    assert directory is not None
    return directory


def test_the_data_directory_is_preferred_and_stays(tmp_path: Path) -> None:
    left = tmp_path / "mongodb-12345.sock"
    left.touch()
    directory = found(tmp_path)
    assert directory.path == tmp_path
    assert directory.socket(27017) == tmp_path / "mongodb-27017.sock"
    directory.remove()
    assert list(tmp_path.iterdir()) == []


def test_another_one_is_only_for_this_user_and_these_data(data: Path, short: Path) -> None:
    directory = found(data)
    assert directory.path.parent == short
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert found(data).path == directory.path
    other = data.with_name("other" * 30)
    other.mkdir()
    assert found(other).path != directory.path
    directory.socket(27017).touch()
    directory.remove()
    assert not directory.path.exists()
    found(other).remove()


def test_what_others_can_write_to_is_not_used(data: Path, short: Path, tmp_path: Path) -> None:
    taken = found(data).path
    taken.chmod(0o770)
    elsewhere = found(data)
    assert elsewhere.path.parent != short
    elsewhere.remove()
    taken.rmdir()
    taken.symlink_to(tmp_path)
    assert found(data).path == elsewhere.path
    elsewhere.remove()


def test_there_may_be_no_place_at_all(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.process.embedded_socket.OTHER_PARENTS", ("/nowhere",))
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert SocketDirectory.of(data) is None
