"""A mistake in a table of limits is named by its entry, without the rest of the table."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from proxy.settings.config import ConfigurationError, load_settings
from proxy.settings.limit_entries import WrongEntry, entries_of
from proxy.settings.limits import UserLimits
from proxy.settings.table import ROWS

USERS = ROWS["user_limits"]
FIRST = "; settings must come before the first table"


def test_text_is_json_and_everything_else_a_table() -> None:
    expected = {"*": UserLimits(max_commands=3)}
    assert entries_of(USERS, '{"*": {"max_commands": 3}}') == entries_of(USERS, {"*": {"max_commands": 3}}) == expected
    with pytest.raises(msgspec.DecodeError):
        entries_of(USERS, '{"*"')
    with pytest.raises(msgspec.ValidationError):
        entries_of(USERS, "[1]")
    with pytest.raises(WrongEntry, match='user_limits "a" is not a table of limits'):
        entries_of(USERS, '{"a": 1}')


@pytest.mark.parametrize(
    ("toml", "name", "reason"),
    [
        (
            '[user_limits."*"]\nmax_commands = 1\nlog_level = "debug"',
            'user_limits "*"',
            f"has no field log_level (…){FIRST}",
        ),
        ('[user_limits]\nlog_level = "debug"', 'user_limits "log_level"', f"is not a table of limits{FIRST}"),
        ("[user_limits]\nann = 1", 'user_limits "ann"', "is not a table of limits"),
        ('[user_limits."*"]\nmax_comands = 1', 'user_limits "*"', "has no field max_comands (…)"),
        (
            '[database_limits.x]\nmax_commands = "many"\n[database_limits.y]',
            'database_limits "x"',
            "is not valid: max_commands = 'many': expected a whole number from 0 to 1000000000",
        ),
        (
            "[database_limits.x]\nmax_wait_ms = 0",
            'database_limits "x"',
            "is not valid: max_wait_ms = 0: expected a whole number from 1 to 3600000",
        ),
    ],
)
def test_the_entry_of_a_file_is_named(tmp_path: Path, toml: str, name: str, reason: str) -> None:
    file = tmp_path / "f.toml"
    file.write_text(toml)
    with pytest.raises(ConfigurationError) as raised:
        load_settings({}, {}, file)
    (problem,) = raised.value.problems
    begin, _, end = f"{name} ({file}) {reason}".partition("…")
    assert problem.startswith(begin)
    assert problem.endswith(end)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"*": {"max_commands": 3}', "is not valid: not JSON; expected a table of limits"),
        ("[1]", "is not valid: expected a table of limits"),
    ],
)
def test_broken_json_of_a_flag(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings({"user_limits": text}, {})
    assert str(raised.value).startswith(f"user_limits = {text!r} (command line) {said}")


def test_a_flag_has_no_first_table() -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings({"user_limits": '{"*": {"log_level": 3}}'}, {})
    assert "has no field log_level" in str(raised.value)
    assert FIRST not in str(raised.value)
