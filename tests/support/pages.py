"""The code blocks of the documents, and what they are said to print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code with the output that the next block shows; empty if there is none."""

    language: str
    code: str
    output: str


def blocks(page: str, language: str) -> list[Block]:
    """The blocks in this language of a page of ``docs``, in their order."""
    fences = _FENCE.findall((DOCS / page).read_text())
    following = [*fences[1:], ("", "")]
    return [
        Block(kind, code, output if after == "text" else "")
        for (kind, code), (after, output) in zip(fences, following, strict=True)
        if kind == language
    ]


def program(found: list[Block], address: str, database: str) -> str:
    """The blocks as one program for a proxy at ``address``, on a database of the test's own."""
    return "\n".join(adapted(block.code, address, database) for block in found)


def adapted(code: str, address: str, database: str) -> str:
    """``code`` with the address and the database of the documents replaced."""
    return re.sub(r"\bweather\b", database, code.replace("127.0.0.1:27018", address))


def output(found: list[Block]) -> str:
    """What the program prints."""
    return "".join(block.output for block in found)
