from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.clients.relay_only import NoNamespaces, OpenGate, no_cursors, no_effects, no_login, no_translate
from proxy.request.times import Times
from rewrite.plan import ForgetNamespace
from tests.support.sessions import session


async def test_defaults_make_nothing_virtual() -> None:
    namespace = Namespace("d", "c")
    assert NoNamespaces().lookup(namespace) is None
    assert await NoNamespaces().resolve(namespace) is None
    no_effects(ForgetNamespace(namespace))
    parsed: Any = type("C", (), {"name": "x"})
    with pytest.raises(CommandError):
        await no_translate(session(), parsed, None, Times())


def test_defaults_ask_nobody_to_log_in() -> None:
    command: Any = type("C", (), {"name": "getMore"})
    assert not no_login()
    assert not no_cursors(command)
    assert not OpenGate().must_log_in(session())
    assert OpenGate().known(session(), ("find",), Namespace("d", "c"))
