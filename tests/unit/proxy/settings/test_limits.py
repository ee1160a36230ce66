from __future__ import annotations

from pathlib import Path

import pytest

from proxy.settings.config import ConfigurationError, load_settings
from proxy.settings.limits import (
    LONGEST_WAIT_MS,
    MOST_ENTRIES,
    MOST_WAITING,
    DatabaseLimits,
    EffectiveLimits,
    UserLimits,
    effective,
    faults,
)
from proxy.settings.table import Settings
from proxy.settings.text import render_settings

FILE = """
[user_limits."*"]
max_connections = 10
max_commands = 5
[user_limits."ann@admin"]
max_commands = 0
max_measurements_per_second = 1000
[database_limits.weather]
max_waiting = 0
max_commands = 2
"""


def loaded(text: str, folder: Path) -> Settings:
    (folder / "tsproxy.toml").write_text(text)
    return load_settings({}, {}, folder / "tsproxy.toml").settings


def test_an_entry_takes_the_rest_from_the_one_for_all(tmp_path: Path) -> None:
    settings = loaded(FILE, tmp_path)
    users, databases = settings.user_limits, settings.database_limits
    assert effective(users, "bob@admin") == EffectiveLimits(max_connections=10, max_commands=5)
    assert effective(users, "ann@admin") == EffectiveLimits(
        max_connections=10, max_commands=0, max_measurements_per_second=1000
    )
    weather = effective(databases, "weather")
    assert (weather.max_commands, weather.max_waiting, weather.max_wait_ms) == (2, 0, LONGEST_WAIT_MS)
    assert weather.limit_anything
    other = effective(databases, "other")
    assert (other, other.max_waiting, other.limit_anything) == (EffectiveLimits(), MOST_WAITING, False)


def test_flags_and_variables_are_json() -> None:
    settings = load_settings(
        {"user_limits": '{"*": {"max_commands": 3}}'}, {"TSPROXY_DATABASE_LIMITS": '{"a": {"max_wait_ms": 7}}'}
    ).settings
    assert settings.user_limits == {"*": UserLimits(max_commands=3)}
    assert settings.database_limits == {"a": DatabaseLimits(max_wait_ms=7)}
    assert Settings().user_limits == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[user_limits."*"]\nmax_comands = 1', "max_comands"),
        ('[user_limits."*"]\nmax_commands = -1', "max_commands"),
        ('[user_limits."*"]\nmax_commands = "3"', "max_commands"),
        ('[user_limits."*"]\nmax_commands = 1.5', "max_commands"),
        ('[user_limits."*"]\nmax_wait_ms = 0', "max_wait_ms"),
        ("[database_limits.a]\nmax_connections = 1", "max_connections"),
        ("[user_limits.ann]\nmax_commands = 1", "'ann' is not"),
        ('[user_limits."@admin"]\nmax_commands = 1', "'@admin' is not"),
        ('[database_limits."a.b"]\nmax_commands = 1', "'a.b' is not"),
        ('[database_limits.""]\nmax_commands = 1', "a name has"),
        ("user_limits = 3", "user_limits"),
        ('user_limits = "x"', "user_limits"),
    ],
)
def test_mistakes_are_named(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        loaded(text, tmp_path)
    (problem,) = raised.value.problems
    assert problem.startswith(("user_limits ", "database_limits "))
    assert reason in problem


def test_tables_are_bounded() -> None:
    table = {f"user{number}@admin": UserLimits() for number in range(MOST_ENTRIES + 1)}
    assert [setting for setting, _ in faults(table, {})] == ["user_limits"]


def test_what_is_printed_can_be_read_again(tmp_path: Path) -> None:
    settings = loaded(FILE, tmp_path)
    printed = render_settings(load_settings({}, {}, tmp_path / "tsproxy.toml"))
    lines = [line.partition("  # ")[0] for line in printed.splitlines() if "_limits" in line]
    assert loaded("\n".join(lines), tmp_path) == settings
