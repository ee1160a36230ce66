from __future__ import annotations

from proxy.backend.backend import Backend
from proxy.backend.namespace_registry import NamespaceRegistry
from proxy.clients.server import NoNamespaces, OpenGate
from proxy.readers.register import ReaderRegister
from proxy.request import ports
from proxy.request.authorisation import Authorisation


def methods(port: type) -> set[str]:
    return {name for name in vars(port) if not name.startswith("_")}


def test_ports_are_what_is_plugged_in() -> None:
    """Mypy holds the signatures where the server is put together; here is which class stands behind which port."""
    pairs = {
        NamespaceRegistry: ports.Namespaces,
        NoNamespaces: ports.Namespaces,
        Authorisation: ports.Gate,
        OpenGate: ports.Gate,
        ReaderRegister: ports.Readers,
    }
    for thing, port in pairs.items():
        assert methods(port) <= set(dir(thing))
    assert hasattr(Backend, "primary_address")
