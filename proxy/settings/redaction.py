"""Keeping passwords out of everything that people read: logs, errors, printed settings."""

from __future__ import annotations

import re

MASK = "***"

# pathlib makes one slash of two.
_SCHEME = r"(?:mongodb(?:\+srv)?|https?):/+"
_BARE = re.compile(_SCHEME, re.IGNORECASE)
# In a message, a quote ends an address, but not its password.
_URI = re.compile(rf"{_SCHEME}(?:(?:(?!{_SCHEME})\S)*@)?[^\s'\"<>]*", re.IGNORECASE)
# The password ends at the last "@": one that was not percent-encoded must not show either.
_USER_PASSWORD = re.compile(rf"^({_SCHEME}[^:@/?#]*):(.*)@", re.IGNORECASE | re.DOTALL)
_SECRET_OPTION = re.compile(
    r"([?&;](?:tlsCertificateKeyFilePassword|sslPEMPassword|proxyPassword|authMechanismProperties)=)[^&;]*",
    re.IGNORECASE,
)
# A user of a collector of traces may be a token, and so may everything of its query.
_WEB = re.compile(r"^(https?:/+)(.*@)?([^?]*)(\?.*)?$", re.IGNORECASE | re.DOTALL)
_PEM = "-----BEGIN"
_GIVEN = re.compile(r"""(?<=['"(]).*@""", re.DOTALL)


def redact_uri(text: str) -> str:
    """``text`` with the secrets of every MongoDB connection string and web address in it masked.

    Works on a bare one, which may have spaces, and on any message that quotes one.
    """
    if _BARE.match(text):
        return _redact_one(text)
    return _URI.sub(lambda found: _redact_one(found.group()), text)


def redact_given(text: str) -> str:
    """A setting's value as it was given, which may be a secret of another setting, or lack a scheme.

    If it is no address and no path, everything before an ``@`` is masked, or else everything after a ``=``. A key or a
    certificate is masked as a whole.
    """
    if _PEM in text:
        return MASK
    if _BARE.match(text) or is_like_a_path(text):
        return redact_uri(text)
    if "@" in text:
        return MASK + text[text.rindex("@") :]
    name, equals, _ = text.partition("=")
    return f"{name}={MASK}" if equals else text


def redact_quoted(message: str) -> str:
    """A message about the command line, with everything masked that it quotes before an ``@``."""
    return _GIVEN.sub(f"{MASK}@", redact_uri(message))


def is_like_a_path(text: str) -> bool:
    """Whether ``text`` begins as only paths do; a relative path may begin in any way."""
    return text.startswith(("/", ".", "~"))


def is_like_an_address(text: str) -> bool:
    """Whether ``text`` looks like a connection string, perhaps one without its scheme."""
    return bool(_BARE.match(text)) or ("@" in text and not is_like_a_path(text))


def _redact_one(uri: str) -> str:
    if web := _WEB.match(uri):
        scheme, user, rest, query = web.groups()
        return "".join((scheme, f"{MASK}@" if user else "", rest, f"?{MASK}" if query else ""))
    return _SECRET_OPTION.sub(rf"\g<1>{MASK}", _USER_PASSWORD.sub(rf"\g<1>:{MASK}@", uri))
