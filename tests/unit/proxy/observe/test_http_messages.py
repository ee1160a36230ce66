"""Requests and answers as bytes."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from proxy.observe.http_messages import HttpAnswer, HttpRequest, encode, parse, plain


def test_a_request_has_its_path_query_host_and_peer() -> None:
    head = b"GET /status.json?after=7 HTTP/1.1\r\nAccept: */*\r\nhOST:  127.0.0.1:1 \r\n\r\n"
    assert parse(head, "192.0.2.1") == (
        "GET",
        HttpRequest(path="/status.json", query="after=7", host="127.0.0.1:1", peer="192.0.2.1"),
    )


@pytest.mark.parametrize(
    "lines", [b"", b"Host: a\r\nHost: b\r\n", b"Hostage: a\r\n", b"X: \r\n"], ids=["none", "two", "other", "empty"]
)
def test_a_host_that_is_not_certain_is_none(lines: bytes) -> None:
    parsed = parse(b"GET / HTTP/1.1\r\n" + lines + b"\r\n", "")
    assert parsed is not None
    assert parsed[1].host == ""


@pytest.mark.parametrize("head", [b"", b"hello", b"GET /", b"GET / HTTP/2", b"GET  / HTTP/1.1"])
def test_what_is_not_http_1_is_none(head: bytes) -> None:
    assert parse(head + b"\r\n\r\n", "") is None


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("after=12", 12),
        ("x=1&after=3", 3),
        ("", 0),
        ("after=", 0),
        ("after=-1", 0),
        ("after=1e9", 0),
        ("after=²", 0),
        ("after=" + "9" * 5_000, 0),
        ("&".join(f"a{n}=1" for n in range(100)), 0),
    ],
)
def test_numbers_of_the_query(query: str, number: int) -> None:
    assert HttpRequest("/", query).number("after") == number


def test_an_answer_says_what_a_browser_may_do_with_it() -> None:
    head, _, body = encode(HttpAnswer(HTTPStatus.OK, b"x", "text/html")).partition(b"\r\n\r\n")
    lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert body == b"x"
    assert lines["Content-Length"] == "1"
    assert lines["Cache-Control"] == "no-store"
    assert lines["X-Content-Type-Options"] == "nosniff"
    assert lines["Referrer-Policy"] == "no-referrer"
    policy = dict(rule.split(" ", 1) for rule in lines["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["img-src"] == "'self' data:"
    assert policy["require-trusted-types-for"] == "'script'"


def test_the_answer_to_head_has_the_length_of_the_body() -> None:
    assert encode(plain(HTTPStatus.NOT_FOUND), head_only=True).endswith(b"\r\n\r\n")
    assert b"Content-Length: 10\r\n" in encode(plain(HTTPStatus.NOT_FOUND), head_only=True)
