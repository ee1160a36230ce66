"""The files of the status page: complete, and nothing from outside."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path

import pytest

from proxy.observe import page_files
from proxy.observe.http_messages import HttpRequest

FOLDER = Path(page_files.__file__).parent / "page"
FILES = sorted(FOLDER.iterdir())
MAX_LINES = 400


def test_each_file_is_served_with_its_type() -> None:
    pages = page_files.pages()
    assert set(pages) == {"/" if file.name == "index.html" else f"/page/{file.name}" for file in FILES}
    for path, page in pages.items():
        answer = page(HttpRequest(path))
        assert answer.status is HTTPStatus.OK
        assert answer.content_type == page_files.TYPES[".html" if path == "/" else Path(path).suffix]


def test_what_is_loaded_is_there() -> None:
    text = "\n".join(file.read_text() for file in FILES)
    loaded = {f"/{name}" for name in re.findall(r'(?:src|href)="(page/[^"]+)"', text)}
    loaded |= {f"/page/{name}" for name in re.findall(r'from "\./([^"]+)"', text)}
    assert loaded == set(page_files.pages()) - {"/"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_comes_from_outside_or_becomes_html(file: Path) -> None:
    text = file.read_text()
    # The namespace of SVG is a name, not an address.
    assert "//" not in re.sub(r"http://www\.w3\.org/2000/svg|^\s*//.*|\s// .*", "", text, flags=re.MULTILINE)
    assert re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|eval|\bon\w+=|style=", text) is None
    assert len(text.splitlines()) <= MAX_LINES


def test_what_modules_fill_is_in_the_document() -> None:
    ids = set(re.findall(r'id="([^"]+)"', (FOLDER / "index.html").read_text()))
    modules = "\n".join(file.read_text() for file in FILES if file.suffix == ".js")
    named = set(re.findall(r'byId\("([^"]+)"\)', modules))
    assert named <= ids
    assert {name for name in ids if name.endswith("-chart")} >= {name for name in named if name.endswith("-chart")}
