"""Log lines: levels, forms, and no passwords in any of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from proxy.observe import logs

URI = "mongodb://user:secret@host/"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """What ``configure`` changes is the process's own."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    structlog.reset_defaults()


@pytest.mark.parametrize("form", ["console", "json"])
def test_passwords_are_masked_wherever_they_stand(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", form)  # type: ignore[arg-type]
    log = structlog.get_logger("test")
    log.info("event mongodb://user:secret@host/", uri=URI, error=ValueError(URI))
    logging.getLogger("other").warning("from %s", URI)
    try:
        raise ValueError(URI)
    except ValueError as error:
        log.error("told", exc_info=error)
    text = capsys.readouterr().err
    assert "secret" not in text
    assert text.count("mongodb://user:***@host/") == 5
    assert "Traceback (most recent call last)" in text


def test_level_holds_for_both_ways_of_logging(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning", "console")
    structlog.get_logger("test").info("quiet")
    logging.getLogger("other").info("quiet")
    structlog.get_logger("test").warning("loud")
    assert "quiet" not in (text := capsys.readouterr().err)
    assert "loud" in text


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    structlog.get_logger("test").info("ready", listen="h:1")
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["event"], entry["level"], entry["listen"]) == ("ready", "info", "h:1")
    assert entry["timestamp"].endswith("Z")


def test_long_values_are_shortened() -> None:
    event = logs.mask_secrets(
        None, "error", {"reason": "x" * 1_000_000, "error": ValueError("y" * 1_000_000), "short": "z"}
    )
    assert all(len(value) < 2 * logs.LONGEST_TEXT for value in event.values())
    assert event["short"] == "z"
    assert event["error"].startswith("ValueError: y")
