"""Where settings come from, which wins, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.settings.config import Address, ConfigurationError, Settings, describe_expected, load_settings
from proxy.settings.table import ROWS


def load(tmp_path: Path, toml: str = "", environment: dict[str, str] | None = None, **flags: str) -> Settings:
    file = tmp_path / "tsproxy.toml"
    file.write_text(toml)
    return load_settings(flags, environment or {}, file).settings


def problems(tmp_path: Path, toml: str = "", environment: dict[str, str] | None = None, **flags: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, toml, environment, **flags)
    return str(caught.value)


def test_defaults_are_used_when_nothing_is_said() -> None:
    settings = load_settings({}, {}).settings
    assert settings.listen == Address("127.0.0.1", 27018)
    assert settings.backend is None
    assert settings.timeseries_bucket_max_count == 1000


def test_flag_wins_over_variable_over_file_over_default(tmp_path: Path) -> None:
    toml = "max_connections = 1\nconnect_timeout_ms = 2\ncommit_rounds_in_flight = 3"
    variables = {"TSPROXY_CONNECT_TIMEOUT_MS": "4", "TSPROXY_COMMIT_ROUNDS_IN_FLIGHT": "5"}
    settings = load(tmp_path, toml, variables, commit_rounds_in_flight="6")
    assert (settings.max_connections, settings.connect_timeout_ms, settings.commit_rounds_in_flight) == (1, 4, 6)
    assert settings.max_pending_measurements == ROWS["max_pending_measurements"].default


def test_origins_tell_where_each_came_from(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text("connect_timeout_ms = 2")
    origins = load_settings({"listen": "h:1"}, {"TSPROXY_LOG_LEVEL": "debug"}, file).origins
    assert origins["listen"] == "command line"
    assert origins["log_level"] == "environment variable TSPROXY_LOG_LEVEL"
    assert origins["connect_timeout_ms"] == str(file)
    assert origins["reopening"] == "default"


def test_file_can_be_named_by_variable(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text("connect_timeout_ms = 7")
    assert load_settings({}, {"TSPROXY_CONFIG": str(file)}).settings.connect_timeout_ms == 7


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("listen", "[::1]:27019", Address("::1", 27019)),
        ("listen", "0.0.0.0:0", Address("0.0.0.0", 0)),
        ("status_listen", "", None),
        ("compressors", "zlib, snappy", ("zlib", "snappy")),
        ("compressors", "", ()),
        ("reopening", "false", False),
        ("commit_linger_ms", "1.5", 1.5),
        ("idle_timeout_seconds", "3", 3.0),
        ("backend", " mongodb://h/ ", "mongodb://h/"),
        ("embedded_data_directory", "/srv/data", Path("/srv/data")),
    ],
)
def test_text_is_read_as_the_settings_type(name: str, text: str, value: object) -> None:
    assert getattr(load_settings({name: text}, {}).settings, name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("listen", "27018"),
        ("listen", "h:70000"),
        ("listen", ""),
        ("listen", "::1:27018"),
        ("connect_timeout_ms", "0"),
        ("connect_timeout_ms", "two"),
        ("commit_linger_ms", "-1"),
        ("namespace_refresh_seconds", "0"),
        ("namespace_refresh_seconds", "nan"),
        ("idle_timeout_seconds", "inf"),
        ("tls_minimum_version", "1.1"),
        ("tls_client_certificates", "on"),
        ("compressors", "snappy,lz4"),
        ("reopening", "maybe"),
        ("log_level", "loud"),
        ("embedded_data_directory", ""),
        ("backend", "http://h/"),
        ("backend", "mongodb://h/?noSuchOption=1"),
        ("tls_certificate_file", "/no/such/file"),
    ],
)
def test_wrong_value_is_refused_with_name_value_origin_and_what_is_right(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({name: text}, {})
    (problem,) = [line for line in caught.value.problems if line.startswith(f"{name} = ")]
    assert repr(text) in problem
    assert "(command line)" in problem
    assert "expected " in problem


@pytest.mark.parametrize(
    "toml", ["connect_timeout_ms = true", "connect_timeout_ms = 1.5", "reopening = 1", "listen = 27018", "listen = []"]
)
def test_toml_value_of_another_type_is_refused(tmp_path: Path, toml: str) -> None:
    assert "expected" in problems(tmp_path, toml)


def test_toml_list_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, 'compressors = ["zstd"]').compressors == ("zstd",)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = problems(tmp_path, "connect_timeout_ms = 0\nno_such = 1", {"TSPROXY_LISTEN": "x"}, log_level="loud")
    assert len(text.splitlines()) == 4


def test_unknown_setting_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    assert "did you mean max_connections?" in problems(tmp_path, "max_conections = 1")
    assert "did you mean TSPROXY_COMPRESSORS?" in problems(tmp_path, environment={"TSPROXY_COMPRESSOR": "1"})


def test_variables_that_kubernetes_sets_for_services_are_no_settings(tmp_path: Path) -> None:
    services = {"TSPROXY_SERVICE_HOST": "10.0.0.1", "TSPROXY_METRICS_PORT": "tcp://10.0.0.1:1", "OTHER_PORT": "1"}
    loaded = load_settings({}, {**services, "TSPROXY_MAX_CONNECTIONS": "7"})
    assert loaded.injected == ("TSPROXY_METRICS_PORT", "TSPROXY_SERVICE_HOST")
    assert (loaded.settings.max_connections, loaded.ignored) == (7, ())
    assert "TSPROXY_PORT (environment) is not a known setting" in problems(tmp_path, environment={"TSPROXY_PORT": "1"})


def test_unreadable_and_broken_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_settings({}, {}, tmp_path / "missing.toml")
    assert "not valid TOML" in problems(tmp_path, "connect_timeout_ms = ")


@pytest.mark.parametrize(
    ("toml", "is_told"),
    [("listen = 0.0.0.0:27018", True), ("log_level = debug", True), ("log_level debug", False)],
)
def test_texts_without_quotes(tmp_path: Path, toml: str, is_told: bool) -> None:
    assert problems(tmp_path, toml).endswith("; texts need quotes") is is_told


def test_backend_is_read_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "uri"
    secret.write_text("mongodb://u:secret@h/\n")
    assert load(tmp_path, environment={"TSPROXY_BACKEND_FILE": str(secret)}).backend == "mongodb://u:secret@h/"
    assert "cannot be combined with backend" in problems(tmp_path, backend="mongodb://h/", backend_file=str(secret))
    secret.write_text("")
    assert "the file is empty" in problems(tmp_path, backend_file=str(secret))
    assert "No such file" in problems(tmp_path, backend_file=str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("backend_file", "mongodb://u:S3cret@h:1/", "a connection string belongs in backend"),
        ("backend_file", "u:S3cret@h:1/", "a connection string belongs in backend"),
        ("trace_headers_file", "Authorization=Bearer S3cret", "expected the path of a file"),
        ("trace_endpoint", "h:1?token=S3cret", "expected a URL"),
        ("backend", "u:S3cret@h:1/", "expected a connection string"),
        ("backend", "MONGODB://u:S3cret@h:1/", "expected a connection string"),
        ("tls_ca_file", "mongodb://u:S3cret@h:1/", "expected an existing file"),
    ],
)
def test_secret_in_the_wrong_place_does_not_show(tmp_path: Path, name: str, given: str, said: str) -> None:
    for told in (
        problems(tmp_path, **{name: given}),
        problems(tmp_path, f"{name} = '{given}'"),
        problems(tmp_path, f"{name} = ['{given}']"),
    ):
        assert "S3cret" not in told
    assert said in problems(tmp_path, **{name: given})


@pytest.mark.parametrize("length", [10, 5_000])
@pytest.mark.parametrize("name", ["tls_certificate_file", "tls_key_file", "backend_file", "trace_headers_file"])
def test_key_in_place_of_its_file_does_not_show(tmp_path: Path, name: str, length: int) -> None:
    told = problems(tmp_path, **{name: f"-----BEGIN PRIVATE KEY-----\n{'S3cret' * length}"})
    assert f"{name} = '***'" in told
    assert "S3cret" not in told


@pytest.mark.parametrize("content", ["u:S3cret@h:1/", "S3cret", "mongodb:/u:S3cret@h"])
def test_content_of_a_backend_file_does_not_show(tmp_path: Path, content: str) -> None:
    (tmp_path / "uri").write_text(content)
    told = problems(tmp_path, backend_file=str(tmp_path / "uri"))
    assert "expected a connection string" in told
    assert "S3cret" not in told


@pytest.mark.parametrize("name", ["backend_file", "embedded_data_directory", "tls_ca_file"])
@pytest.mark.parametrize(
    ("given", "said"), [("~nobody-like-this/x", "has no home directory"), ("a\0b", "it has a NUL")]
)
def test_what_cannot_be_a_path(tmp_path: Path, name: str, given: str, said: str) -> None:
    told = problems(tmp_path, **{name: given})
    assert "expected a path" in told
    assert said in told


@pytest.mark.parametrize(
    ("given", "said"), [("~nobody-like-this/x", "has no home directory"), ("a\0b", "it has a NUL")]
)
def test_path_of_the_configuration_file_that_cannot_be_one(given: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"config = .* is not a path: .*{said}"):
        load_settings({}, {"TSPROXY_CONFIG": given})


def test_without_a_home_directory_only_an_embedded_mongod_needs_another_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    assert load_settings({"backend": "mongodb://h/"}, {}).settings.backend == "mongodb://h/"
    with pytest.raises(ConfigurationError, match="embedded_data_directory"):
        load_settings({}, {})


@pytest.mark.parametrize(
    "toml",
    [
        "shutdown_grace_seconds = inf",
        "slow_command_ms = nan",
        "compress_after_seconds = -inf",
        "server_selection_timeout_ms = 1_000_000_000",
        f"timeseries_bucket_min_count = {2**63}",
        f"max_receiving_bytes = {10**29}",
        f"slow_command_ms = {10**29}",
        f"user_limits = {{'*' = {{max_commands = {10**29}}}}}",
        f"max_connections = {'9' * 5_000}",
    ],
)
def test_numbers_without_end(tmp_path: Path, toml: str) -> None:
    assert "is not valid" in problems(tmp_path, toml)


def test_bounds_of_limits_are_told() -> None:
    told = describe_expected(ROWS["user_limits"])
    assert "max_waiting, max_connections: a whole number from 0 to 1000000000" in told
    assert "max_wait_ms: a whole number from 1 to 3600000" in told


def test_missing_configuration_file_may_be_a_connection_string() -> None:
    with pytest.raises(ConfigurationError, match=r"config = 'mongodb:/u:\*\*\*@h' cannot be read"):
        load_settings({}, {}, Path("mongodb://u:secret@h"))


def test_files_that_the_connection_string_names_must_exist(tmp_path: Path) -> None:
    told = problems(tmp_path, backend="mongodb://u:secret@h/?tls=true&tlsCAFile=/missing")
    assert "/missing: No such file or directory" in told
    assert "secret" not in told


def test_password_never_shows_in_a_problem(tmp_path: Path) -> None:
    for uri in ("mongodb://u:secret@h:99999/", "mongodb://u:sec@secret@h/", "mongodb://u:secret@h/?x=1"):
        assert "secret" not in problems(tmp_path, backend=uri)


def test_contradictions_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "pem"
    file.touch()
    assert "requires tls_certificate_file" in problems(tmp_path, tls_key_file=str(file))
    assert "requires tls_ca_file" in problems(tmp_path, tls_client_certificates="required")
    assert "must differ from listen" in problems(tmp_path, listen="h:1", status_listen="h:1")
    assert "must differ from listen" in problems(tmp_path, listen="h:1", admin_listen="h:1")
    assert "must differ from status_listen" in problems(tmp_path, status_listen="h:1", admin_listen="h:1")
    assert "must not exceed max_connections (5)" in problems(
        tmp_path, max_connections="5", max_connections_per_address="6"
    )
    assert "contains a name twice" in problems(tmp_path, compressors="zlib,zlib")


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_every_setting_says_what_it_does_and_what_it_may_be(row: object) -> None:
    assert hasattr(row, "text")
    assert row.text.endswith(".")
    assert describe_expected(row)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [("TSPROXY_FOO", None), ("TSPROXY_BACKENDS", "TSPROXY_BACKEND"), ("TSPROXY_LISTNE", "TSPROXY_LISTEN")],
)
def test_only_misspellings_are_recognised(variable: str, meant: str | None) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({}, {variable: "1"})
    end = f"; did you mean {meant}?" if meant else ""
    assert caught.value.problems == (f"{variable} (environment) is not a known setting{end}",)


def test_unknown_names_can_be_ignored() -> None:
    loaded = load_settings({}, {"TSPROXY_FOO": "1", "TSPROXY_IGNORE_UNKNOWN_SETTINGS": "true"})
    assert loaded.ignored == ("TSPROXY_FOO (environment) is not a known setting",)
