"""Who is on this machine, and by which name it is called."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(peer: str) -> bool:
    """Whether a connection comes from this machine; ``""`` is a Unix socket."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer == ""
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def names_this_machine(host: str) -> bool:
    """Whether the ``Host`` of an HTTP request is a loopback address or ``localhost``.

    A page of somebody else, whose name was made to point here, sends its own name (DNS rebinding).
    """
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name != "" and (name.lower() == "localhost" or is_loopback(name))
