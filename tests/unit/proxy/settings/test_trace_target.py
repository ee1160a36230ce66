from __future__ import annotations

import sys
from pathlib import Path

import pytest

from proxy.settings.config import ConfigurationError, load_settings
from proxy.settings.text import render_settings
from proxy.settings.trace_target import headers_of, is_url, lacks_library


@pytest.mark.parametrize(
    "text", ["http://a", "https://a.example:4318/v1/traces", "http://[::1]:4318/", "http://u:p@a/"]
)
def test_urls(text: str) -> None:
    assert is_url(text)


@pytest.mark.parametrize(
    "text", ["", "a:4318", "grpc://a:4317", "http://", "http://a:x/", "http://a:99999/", "http://[::1"]
)
def test_what_is_no_url(text: str) -> None:
    assert not is_url(text)


def test_headers_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "headers"
    path.write_text("# comment\n\n Authorization = Basic YTpi=\nx_b=\n")
    assert headers_of(path) == {"authorization": "Basic YTpi=", "x_b": ""}


@pytest.mark.parametrize("line", ["secret", "=secret", "a b=secret", "a=sécret", "a=\x07secret"])
def test_a_wrong_line_is_named_without_its_value(tmp_path: Path, line: str) -> None:
    path = tmp_path / "headers"
    path.write_text(f"a=b\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as raised:
        load_settings({"trace_headers_file": str(path)}, {}, None)
    assert "line 2 is not NAME=VALUE" in str(raised.value)
    assert "cret" not in str(raised.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    for name in ("missing", "binary"):
        with pytest.raises(ConfigurationError, match="trace_headers_file"):
            load_settings({"trace_headers_file": str(tmp_path / name)}, {}, None)


def test_an_endpoint_must_be_a_url_and_its_password_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="trace_endpoint"):
        load_settings({"trace_endpoint": "collector:4318"}, {}, None)
    loaded = load_settings({"trace_endpoint": "https://me:hidden@collector/v1/traces"}, {}, None)
    assert "https://***@collector/v1/traces" in render_settings(loaded)
    assert "hidden" not in render_settings(loaded)


@pytest.mark.parametrize("present", [[], ["sdk/trace"], ["sdk/trace", "exporter/otlp/proto"]])
def test_without_the_library_tracing_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, present: list[str]
) -> None:
    assert not lacks_library()
    load_settings({"tracing": "true"}, {}, None)
    for name in [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    # It hides the real one.
    for path in (tmp_path / "opentelemetry" / each for each in (".", *present)):
        path.mkdir(parents=True, exist_ok=True)
        for package in (path, *path.parents):
            if package.is_relative_to(tmp_path / "opentelemetry"):
                (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert lacks_library()
    load_settings({"tracing": "false"}, {}, None)
    with pytest.raises(ConfigurationError, match=r"pip install 'tsproxy\[otel\]'"):
        load_settings({"tracing": "true"}, {}, None)
