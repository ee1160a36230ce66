"""The site that `make docs` builds: what it shows, from which requirements, and how a built one is checked."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from docs.generator.built import faults

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text()
CAPTIONS = ("Start", "Guides", "Reference", "Inside")


def trees() -> list[tuple[str, list[str]]]:
    """The caption and the entries of each table of contents in the index."""
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```", INDEX, re.MULTILINE | re.DOTALL)
    return [
        (re.findall(r"^:caption: (.*)$", block, re.MULTILINE)[0], re.findall(r"^[^:\s].*$", block, re.MULTILINE))
        for block in blocks
    ]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")} - {"index"}
    assert Counter(entry for _, entries in trees() for entry in entries) == Counter(pages)
    assert tuple(caption for caption, _ in trees()) == CAPTIONS


def test_the_index_describes_every_page() -> None:
    described = set(re.findall(r"\]\(([\w/-]+)\.md\)", INDEX))
    assert {entry for _, entries in trees() for entry in entries} - described == set()


def test_lock_fulfils_the_requirements_with_hashes() -> None:
    text = (ROOT / "requirements-docs.lock").read_text()
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    for requirement in map(Requirement, groups["docs"]):
        assert pins[requirement.name] in requirement.specifier
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text


PAGE = """<html><head><link rel="canonical" href="https://db.example/"><script src="a.js"></script></head>
<body><h1 id="top">x</h1>{}</body></html>"""


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="#top">x</a><a href="b.html#there">x</a><a href="https://db.example/">x</a>', []),
        ('<a href="#nowhere">x</a>', ["a.html links to #nowhere, which has no such anchor"]),
        ('<a href="b.html#top-">x</a>', ["a.html links to b.html#top-, which has no such anchor"]),
        ('<a href="c.html">x</a>', ["a.html links to c.html, which does not exist"]),
        ('<img src="d.png">', ["a.html links to d.png, which does not exist"]),
        ('<img src="//db.example/d.png">', ["a.html loads //db.example/d.png from outside"]),
    ],
)
def test_built_sites_are_checked(tmp_path: Path, body: str, fault: list[str]) -> None:
    (tmp_path / "a.html").write_text(PAGE.format(body))
    (tmp_path / "b.html").write_text('<a name="there">x</a>')
    (tmp_path / "a.js").write_text("")
    assert list(faults(tmp_path)) == fault


def test_style_sheets_that_load_fonts_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@font-face { src: url(https://db.example/font.woff2) }")
    assert list(faults(tmp_path)) == ["a.css loads something from outside"]
