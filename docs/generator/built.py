"""Checks a site that was built: every link and anchor inside it exists, and nothing is loaded from outside.

``python -m docs.generator.built build/docs``. The generator checks the links that it resolves itself; this also covers
those in raw HTML and in its own templates.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "link": "href", "img": "src", "source": "src", "iframe": "src"}
"""What a browser loads by itself, with the attribute that names it."""
_NOT_LOADED = {"canonical", "search", "index", "prev", "next", "author", "copyright"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors = {""}
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given and not _NOT_LOADED.intersection(given.get("rel", "").split()):
            self.loads.append(given[LOADED[tag]])


def faults(site: Path) -> Iterator[str]:
    """One line for each fault."""
    pages: dict[Path, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        page = _Page()
        page.feed(path.read_text())
        pages[path.resolve()] = page
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        yield from (f"{where} loads {address} from outside" for address in page.loads if urlsplit(address).netloc)
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{where} links to {link}, which does not exist"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{where} links to {link}, which has no such anchor"
    for path in sorted(site.rglob("*.css")):
        if "url(http" in path.read_text() or "url(//" in path.read_text():
            yield f"{path.relative_to(site)} loads something from outside"


def main(site: Path) -> int:
    """The exit code for a site: 1 if there are faults, which are printed."""
    found = list(faults(site))
    for fault in found:
        sys.stderr.write(f"{fault}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
