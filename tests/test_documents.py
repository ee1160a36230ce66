"""What the documents say is there is there: modules, settings, metrics, targets, the states of a write batch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catalog.buckets.write_batch import TRANSITIONS
from docs.generator import event_page
from docs.generator.pages import FOLDER, PAGES, pages
from proxy.settings.table import ROWS
from proxy.settings.text import render_example
from tests.support.headings import anchors

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def diagram() -> str:
    """The states of a write batch as a diagram, from the table that decides them (W60-W66)."""
    lines = ["stateDiagram-v2", "    [*] --> OPEN"]
    for state, events in TRANSITIONS.items():
        lines += [f"    {state.name} --> {to.name}: {event.name.lower()}" for event, to in events.items()]
    return "\n".join([*lines, *(f"    {state.name} --> [*]" for state, events in TRANSITIONS.items() if not events)])


def test_diagram_of_write_batches_is_their_table() -> None:
    assert ARCHITECTURE.split("```mermaid\n")[1].split("\n```")[0] == diagram()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_modules_and_files_that_are_named_exist(path: Path) -> None:
    names = set(re.findall(r"`((?:proxy|rewrite|catalog|tests|docs|bench|deploy)/[\w./]+)`", path.read_text()))
    dotted = set(re.findall(r"`((?:proxy|rewrite|catalog)(?:\.[a-z_]+)+)", path.read_text()))
    # What a run of the bench leaves is not in a checkout.
    missing = {name for name in names if not (ROOT / name).exists() and not name.startswith("bench/out")}
    assert missing | {name for name in dotted if not _is_module(name.split("."))} == set()


def _is_module(parts: list[str]) -> bool:
    """A module, a package, or a name in a module."""
    whole, above = ROOT.joinpath(*parts), ROOT.joinpath(*parts[:-1])
    if whole.is_dir() or whole.with_suffix(".py").exists():
        return True
    module = above.with_suffix(".py") if not above.is_dir() else above / "__init__.py"
    return module.exists() and re.search(rf"\b{parts[-1]}\b", module.read_text()) is not None


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_headings(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", path.read_text())
    assert [
        (name, anchor) for name, anchor in links if anchor not in anchors(path.parent / name if name else path)
    ] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_bullets_begin_lines(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert [line for line in prose if re.search(r"\. - [A-Z*]", line)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_that_are_named_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|\$ |\d )make ([a-z-]+)", path.read_text())) <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_settings_that_are_named_exist(path: Path) -> None:
    names = re.findall(r"TSPROXY_([A-Z_]+)", path.read_text())
    known = {name.upper() for name in ROWS} | {"CONFIG", "KERNEL"}
    passed_by = re.compile(r"TEST_[A-Z_]+|SERVICE_|PORT")
    assert {name for name in names if name not in known and not passed_by.fullmatch(name)} == set()


def test_every_setting_is_read_somewhere() -> None:
    """A setting that nothing acts on is a promise that nobody keeps."""
    edges = [path for path in (ROOT / "proxy").rglob("*.py") if path.name != "settings_table.py"]
    text = "\n".join(path.read_text() for path in edges)
    read = r"\b[a-z_]*\.{name}\b|\.get\(\"{name}\"\)"
    assert [name for name in ROWS if not re.search(read.format(name=name), text)] == []


def test_the_readme_is_short() -> None:
    """Two screens: everything else is in ``docs``."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_the_example_is_what_the_program_prints() -> None:
    assert (ROOT / "config.example.toml").read_text() == render_example()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_reference_pages_are_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text() == pages()[name], "run `make reference`"


def test_every_error_and_warning_of_the_log_is_explained() -> None:
    text = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text()
    serious = {name for name, event in event_page.events().items() if event.levels & {"error", "warning"}}
    assert {name for name in serious if f"\n### `{name}`\n" not in text} == set()
