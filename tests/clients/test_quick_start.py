"""What the quick start says to type works, and prints what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.node import mongosh_json, node
from tests.support.pages import adapted, blocks, output, program
from tests.support.proxy import ProxyProcess


def test_pymongo(proxy: ProxyProcess, db_name: str) -> None:
    found = blocks("start/pymongo.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", program(found, proxy.address, db_name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (output(found), "")


@pytest.mark.drivers
@pytest.mark.timeout(700)
@pytest.mark.parametrize("page", ["node", "mongoose"])
def test_node(proxy: ProxyProcess, db_name: str, tmp_path: Path, page: str) -> None:
    found = blocks(f"start/{page}.md", "js")
    module = tmp_path / f"quick_start_{page}.mjs"
    module.write_text(program(found, proxy.address, db_name))
    assert node(module) == output(found)


@pytest.mark.drivers
@pytest.mark.timeout(700)
def test_mongosh(proxy: ProxyProcess, db_name: str) -> None:
    found = blocks("start/mongosh.md", "js")
    assert all(block.output for block in found)
    shown = [f"shown.push({adapted(block.code, proxy.address, db_name).strip()});" for block in found]
    said = [f"said.push({block.output.strip()});" for block in found]
    script = "\n".join(["const shown = [], said = [];", *shown, *said, "show([shown, said])"])
    result, expected = mongosh_json(f"{proxy.uri}{db_name}", script)
    assert result == expected
