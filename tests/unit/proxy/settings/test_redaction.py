"""Passwords never show."""

from __future__ import annotations

import pytest

from proxy.settings.redaction import redact_uri


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
