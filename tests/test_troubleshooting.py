"""Every text that the troubleshooting page quotes is in the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from docs.generator.sources import PLACEHOLDER, sources

PAGE = (Path(__file__).parent.parent / "docs" / "guides" / "troubleshooting.md").read_text()
QUOTED = re.findall(r"^### `(.*)`$", PAGE, re.MULTILINE)


@cache
def literals() -> frozenset[str]:
    """All texts in the code, with the placeholder for what is inserted."""
    return frozenset(
        text
        for source in sources().values()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        for text in source.texts(node)
    )


@pytest.mark.parametrize("text", QUOTED)
def test_texts_are_those_of_the_code(text: str) -> None:
    parts = [part for part in text.split(PLACEHOLDER) if part.strip()]
    assert parts
    assert any(all(part in literal for part in parts) for literal in literals())


def test_entries_are_unique() -> None:
    assert sorted(set(QUOTED)) == sorted(QUOTED)
