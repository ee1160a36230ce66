"""How Sphinx builds the site from these documents (`make docs`). Nothing is loaded from outside."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent

project = "tsproxy"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
extensions = ["myst_parser"]
exclude_patterns = ["generator", "requirements.*", "_build"]

# Headings get the anchors that they have in a repository's view, so that links work in both.
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"tsproxy {release}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

nitpicky = True


_ANCHOR = re.compile(r'^<a id="([^"]+)"></a>', re.MULTILINE)
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[A-Z]+\.md)\)")


def _adapt(app: Sphinx, docname: str, source: list[str]) -> None:
    """Anchors become targets; documents of the repository that are no pages become downloads, as other files do."""
    text = _ANCHOR.sub(r"(\1)=\n", source[0])
    source[0] = _OUTSIDE.sub(r"{download}`\1 <\2>`", text)


def setup(app: Sphinx) -> None:
    """Register what the documents need."""
    app.connect("source-read", _adapt)
    # A diagram is shown as its text: what draws it would have to be loaded.
    app.add_lexer("mermaid", TextLexer)
