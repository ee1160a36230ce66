"""Where links into a document may lead."""

from __future__ import annotations

import re
from pathlib import Path


def anchors(path: Path) -> set[str]:
    """Its headings, as they are commonly turned into anchors, and the anchors that it sets itself."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(
        re.findall(r'<a id="([^"]+)"', text)
    )
