"""The command line without a server: help, version, settings."""

from __future__ import annotations

from importlib import metadata

import click
import pytest
from click.testing import CliRunner, Result

from proxy.process import commands


def call(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(commands.cli, arguments, env=environment)


def test_version() -> None:
    assert call("--version").output == f"tsproxy {metadata.version('tsproxy')}\n"


@pytest.mark.parametrize("given", ["mongodb://u:secret@h", "u:secret@h", "--mongodb://u:secret@h"])
@pytest.mark.parametrize("command", ["serve", "check-config", "doctor", "import", ""])
def test_stray_connection_string_does_not_show_its_password(command: str, given: str) -> None:
    done = call(*filter(None, (command, given)))
    assert done.exit_code == 2
    assert "***@h" in done.output
    assert "secret" not in done.output


@pytest.mark.parametrize("name", commands.cli.commands)
def test_the_help_of_all_commands_says_what_the_help_of_each_one_says(name: str) -> None:
    """It does so without importing them."""
    context = click.Context(commands.cli)
    listed = commands.cli.get_command(context, name)
    _, command, rest = commands.cli.resolve_command(context, [name, "--flag"])
    assert listed is not None
    assert command is not None
    assert (command.name, rest) == (name, ["--flag"])
    assert listed.get_short_help_str(1_000) == command.get_short_help_str(1_000)
