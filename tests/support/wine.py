"""Servers that exist for Windows only, run by Wine.

Each server has a Wine *prefix* of its own, so that its helper processes are its own, too, and end with it. A prefix is
made once for the environment and copied as hard links, because making one takes seconds and hundreds of megabytes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_DIRECTORIES: Final = (Path("/usr/lib/wine"), Path("/usr/lib/x86_64-linux-gnu/wine"), Path("/usr/bin"))
_LOADERS: Final = ("wine64", "wine")
_SERVERS: Final = ("wineserver64", "wineserver")
_REGISTRY: Final = ".reg"
_PACKAGE: Final = "wine64"
QUIET: Final = {"WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml,winemenubuilder.exe="}
"""No messages of Wine itself, no offers to install what it can do without, no entries in menus."""


class WineMissing(RuntimeError):
    """Wine is not installed; the message says how to install it."""


def _found(names: Sequence[str]) -> Path | None:
    # The names under /usr/bin may be scripts that expect the 32-bit half as well.
    places = [directory / name for directory in _DIRECTORIES for name in names]
    return next((each for each in places if os.access(each, os.X_OK)), None)


def install() -> None:
    """Install Wine where it is missing; raises ``WineMissing`` unless this process may do that."""
    if _found(_LOADERS) and _found(_SERVERS):
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", _PACKAGE]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise WineMissing(f"install Wine first, as root: {' '.join(command)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update"], check=True, stdout=subprocess.DEVNULL, env=environment)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


class Wine:
    """A prefix in ``directory``, its processes, and how programs are started in it."""

    def __init__(self, directory: Path) -> None:
        loader, server = _found(_LOADERS), _found(_SERVERS)
        if loader is None or server is None:
            raise WineMissing(f"Wine is not installed: apt-get install {_PACKAGE}")
        self._loader = loader
        self._server = server
        self._directory = directory
        self._watch: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """What processes in this prefix need."""
        return {**QUIET, "WINEPREFIX": str(self._directory)}

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """The command line of a Windows program; absolute paths among its arguments become Windows paths."""
        return [str(self._loader), str(program), *(windows_path(each) for each in arguments)]

    def open(self, template: Path) -> None:
        """Make the prefix from ``template``, and have all of its processes end when this process dies."""
        self.close()
        if not self._directory.exists():
            self._copy(_made(template, self._loader, self._server))
        # The end of the pipe closes with this process, however it ends.
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; "$0" -k; exec "$0" -w', str(self._server)],
            stdin=subprocess.PIPE,
            env={**os.environ, **self.environment},
            start_new_session=True,
        )

    def close(self) -> None:
        """End every process of the prefix."""
        if self._watch is not None:
            assert self._watch.stdin is not None
            self._watch.stdin.close()
            self._watch.wait(60)
            self._watch = None

    def _copy(self, template: Path) -> None:
        shutil.copytree(template, self._directory, symlinks=True, copy_function=_link)


def windows_path(argument: str) -> str:
    """An absolute path as Windows programs under Wine see it; everything else as it is."""
    return "Z:" + argument.replace("/", "\\") if argument.startswith("/") else argument


def _link(source: str, target: str) -> None:
    """A hard link where possible; Wine replaces files, except those of the registry."""
    if source.endswith(_REGISTRY):
        shutil.copy2(source, target)
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _made(template: Path, loader: Path, server: Path) -> Path:
    """The template, which the first process that needs it makes; the others wait."""
    template.parent.mkdir(parents=True, exist_ok=True)
    with (template.parent / f"{template.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            unfinished = template.with_name(f"{template.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            environment = {**os.environ, **QUIET, "WINEPREFIX": str(unfinished)}
            output = subprocess.DEVNULL
            subprocess.run(
                [str(loader), "wineboot", "--init"], check=True, stdout=output, stderr=output, env=environment
            )
            subprocess.run([str(server), "-k"], check=False, env=environment)
            subprocess.run([str(server), "-w"], check=True, env=environment)
            unfinished.rename(template)
    return template
