"""Passwords never show."""

from __future__ import annotations

import pytest

from proxy.settings.redaction import redact_given, redact_quoted, redact_uri


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://h:27017/", "mongodb://h:27017/"),
        ("mongodb://user@h/?appName=x", "mongodb://user@h/?appName=x"),
        ("mongodb://user:secret@h/db", "mongodb://user:***@h/db"),
        ("mongodb+srv://user:secret@h/db", "mongodb+srv://user:***@h/db"),
        ("mongodb://user:@h/", "mongodb://user:***@h/"),
        ("mongodb://user:se@cr@et@h/", "mongodb://user:***@h/"),
        ("mongodb://user:se/cr?et@h/", "mongodb://user:***@h/"),
        ("mongodb://user:se'cr et@h/", "mongodb://user:***@h/"),
        ("MongoDB://user:secret@h/", "MongoDB://user:***@h/"),
        ("mongodb:/user:secret@h", "mongodb:/user:***@h"),
        ("https://user:secret@h/v1?token=secret", "https://***@h/v1?***"),
        ("https://secret@h/", "https://***@h/"),
        ("mongodb://h/?tlsCertificateKeyFilePassword=secret&w=1", "mongodb://h/?tlsCertificateKeyFilePassword=***&w=1"),
        (
            "mongodb://h/?w=1&authMechanismProperties=AWS_SESSION_TOKEN:secret",
            "mongodb://h/?w=1&authMechanismProperties=***",
        ),
    ],
)
def test_secret_is_masked(uri: str, shown: str) -> None:
    assert redact_uri(uri) == shown


def test_every_uri_of_a_message_is_masked() -> None:
    message = "tried 'mongodb://a:secret@h1/', then <mongodb://b:secret@h2/>"
    assert redact_uri(message) == "tried 'mongodb://a:***@h1/', then <mongodb://b:***@h2/>"


def test_quote_in_a_password_does_not_end_it() -> None:
    assert redact_uri("""backend = "mongodb://a:sec'ret@h1/" is wrong""") == 'backend = "mongodb://a:***@h1/" is wrong'


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("user:secret@h:1/", "***@h:1/"),
        ("secret@h", "***@h"),
        ("mongodb:/user:secret@h:1", "mongodb:/user:***@h:1"),
        ("Authorization=Bearer secret", "Authorization=***"),
        ("-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----", "***"),
        ("/run/credentials/tsproxy@1.service/uri=x", "/run/credentials/tsproxy@1.service/uri=x"),
        ("~/a@b", "~/a@b"),
        ("folder/file", "folder/file"),
    ],
)
def test_value_that_belongs_elsewhere(given: str, shown: str) -> None:
    assert redact_given(given) == shown


def test_message_about_the_command_line() -> None:
    assert redact_quoted("unexpected (user:sec ret@h)") == "unexpected (***@h)"
    assert redact_quoted("no such command 'user:secret@h'") == "no such command '***@h'"
    assert redact_quoted("no such command 'server'") == "no such command 'server'"
