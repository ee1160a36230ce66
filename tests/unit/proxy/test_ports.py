from __future__ import annotations

from proxy import ports
from proxy.authorisation import Authorisation
from proxy.backend import Backend
from proxy.namespace_registry import NamespaceRegistry
from proxy.server import NoIngest, NoNamespaces, OpenGate


def methods(port: type) -> set[str]:
    return {name for name in vars(port) if not name.startswith("_")}


def test_ports_are_what_is_plugged_in() -> None:
    """Mypy holds the signatures where the server is put together; here is which class stands behind which port."""
    pairs = {
        NamespaceRegistry: ports.Namespaces,
        NoNamespaces: ports.Namespaces,
        NoIngest: ports.Ingest,
        Authorisation: ports.Gate,
        OpenGate: ports.Gate,
    }
    for thing, port in pairs.items():
        assert methods(port) <= set(dir(thing))
    assert hasattr(Backend, "primary_address")
