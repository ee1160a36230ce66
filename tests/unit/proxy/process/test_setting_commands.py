"""The commands that take settings, without a server."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.process import commands
from proxy.process.cli import main
from proxy.settings.config import ConfigurationError
from proxy.settings.table import ROWS
from proxy.settings.text import render_example
from tests.support.ports import free_port


def call(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(commands.cli, arguments, env=environment)


def test_help_has_a_flag_for_every_setting() -> None:
    text = call("serve", "--help").output
    assert set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) >= {row.flag for row in ROWS.values()}


@pytest.mark.parametrize("arguments", [("check-config",), ("serve", "--print-config")])
def test_effective_settings_are_printed_with_passwords_masked(arguments: tuple[str, ...]) -> None:
    done = call(*arguments, "--backend", "mongodb://u:secret@h/", TSPROXY_MAX_CONNECTIONS="3")
    assert done.exit_code == 0
    assert "secret" not in done.output
    assert tomllib.loads(done.output)["max_connections"] == 3


def test_check_config_reads_the_file(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text("max_connections = 77")
    assert "max_connections = 77" in call("check-config", "--config", str(tmp_path / "f.toml")).output


def test_check_config_prints_the_example() -> None:
    assert call("check-config", "--example").output == render_example()


def test_wrong_settings_are_handed_to_main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(call("check-config", "--max-connections", "0").exception, ConfigurationError)
    monkeypatch.setattr("sys.argv", ["tsproxy", "check-config", "--max-connections", "0", "--log-level", "loud"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert [line.split(" = ")[0] for line in capsys.readouterr().err.splitlines()] == [
        "tsproxy: max_connections",
        "tsproxy: log_level",
    ]


def test_health_without_a_proxy_says_what_to_look_at() -> None:
    done = call("health", "--status-listen", f"127.0.0.1:{free_port()}")
    assert done.exit_code == 1
    assert done.stderr.endswith("/readyz: Connection refused; is tsproxy running with this status_listen?\n")


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (("--reuse-port",), "true"),
        (("--reuse-port", "--log-level", "info"), "true"),
        (("--reuse-port", "true"), "true"),
        (("--reuse-port=false",), "false"),
        ((), "false"),
    ],
)
def test_the_name_of_a_boolean_alone_means_true(arguments: tuple[str, ...], value: str) -> None:
    assert f"\nreuse_port = {value} " in call("check-config", *arguments).output


def test_help_shows_values_and_defaults() -> None:
    text = call("serve", "--help").output
    assert all(f"{row.flag} true|false" in text for row in ROWS.values() if row.is_boolean)
    assert "[default: ]" not in text
    assert "[default: {}]" not in text
    assert "``" not in "".join(call(name, "--help").output for name in commands.cli.commands)


def test_health_without_an_address_is_bad_configuration() -> None:
    assert isinstance(call("health", "--status-listen", "").exception, ConfigurationError)


def test_check_config_loads_the_certificate(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("garbage")
    error = call("check-config", "--tls-certificate-file", str(tmp_path / "cert.pem")).exception
    assert isinstance(error, ConfigurationError)
    assert "has no PEM certificate" in str(error)


def flags_in_help(command: str) -> set[str]:
    return set(re.findall(r"^  (--[a-z-]+)", call(command, "--help").output, re.MULTILINE))


def test_help_shows_the_flags_that_concern_a_command() -> None:
    assert flags_in_help("health") == {"--config", "--status-listen"}
    assert flags_in_help("check-config") == {"--config", "--example", "--ignore-unknown-settings"}
    assert flags_in_help("doctor") == {
        "--backend",
        "--backend-file",
        "--timeseries-access",
        "--write-strategy",
        "--config",
        "--connect-timeout-ms",
        "--json",
        "--strict",
    }
    assert call("check-config", "--max-connections", "7").exit_code == 0


def test_doctor_without_a_backend_is_bad_configuration() -> None:
    assert isinstance(call("doctor").exception, ConfigurationError)


def test_settings_of_a_newer_version_are_a_warning_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text("not_yet_known = 1")
    arguments = ["check-config", "--config", str(tmp_path / "f.toml")]
    assert isinstance(call(*arguments).exception, ConfigurationError)
    done = call(*arguments, "--ignore-unknown-settings", "true", TSPROXY_NOT_YET="1")
    assert done.exit_code == 0
    assert "tsproxy: ignored: not_yet_known" in done.stderr
    assert "TSPROXY_NOT_YET" in done.stderr
