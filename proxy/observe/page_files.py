"""The files of the status page: one HTML document, one style sheet, modules. They never change while a process runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from importlib import resources
from typing import Final

from proxy.observe.http_messages import HttpAnswer, HttpRequest, Page

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
_FOLDER: Final = "page"
_FIRST: Final = "index.html"


def pages() -> Mapping[str, Page]:
    """The pages by path; the HTML document is ``/``. Reads the files once."""
    found: dict[str, Page] = {}
    for file in (resources.files(__package__) / _FOLDER).iterdir():
        content_type = TYPES.get("." + file.name.rpartition(".")[2])
        if content_type is not None:
            path = "/" if file.name == _FIRST else f"/page/{file.name}"
            found[path] = partial(_answer, HttpAnswer(HTTPStatus.OK, file.read_bytes(), content_type))
    return found


def _answer(answer: HttpAnswer, request: HttpRequest) -> HttpAnswer:
    return answer
