"""Sockets that a service manager has opened: which is which, and what is wrong with them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from proxy.process.activation import Launch, for_another_process, given_sockets, with_addresses
from proxy.settings.config import load_settings

# Makes the sockets that the arguments name, in order, descriptors from 3 on, and sets the variables.
PROGRAM = """
import os, socket, sys
kinds, names, pid = sys.argv[1], sys.argv[2], sys.argv[3]
made = []
for kind in kinds.split():
    if kind == "udp":
        each = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        each.bind(("127.0.0.1", 0))
    elif kind == "unix":
        each = socket.socketpair()[0]
    else:
        each = socket.create_server(("::1" if kind == "six" else "127.0.0.1", 0),
            family=socket.AF_INET6 if kind == "six" else socket.AF_INET)
    made.append(each)
spare = [os.dup2(each.fileno(), 40 + place) for place, each in enumerate(made)]
for place, each in enumerate(spare):
    os.dup2(each, 3 + place)
for each in made:
    each.detach()
from proxy.process.activation import given_sockets
from proxy.settings.config import ConfigurationError
environment = {"LISTEN_FDS": str(len(made)), "LISTEN_PID": pid or str(os.getpid())}
if names != "-":
    environment["LISTEN_FDNAMES"] = names
try:
    found = given_sockets(environment)
except ConfigurationError as error:
    print(error)
else:
    print({name: [each.getsockname()[0] for each in sockets] for name, sockets in found.items()})
    assert not any(os.get_inheritable(each.fileno()) for sockets in found.values() for each in sockets)
assert not environment
"""


def given(kinds: str, names: str, pid: str = "") -> str:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, kinds, names, pid], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


def test_names_say_which_socket_is_which() -> None:
    found = given("tcp six tcp", "listen:listen:status_listen")
    assert found == "{'listen': ['127.0.0.1', '::1'], 'status_listen': ['127.0.0.1']}"


@pytest.mark.parametrize(
    ("kinds", "names", "problem"),
    [
        ("tcp", "tsproxy.socket", "'tsproxy.socket' is not the name of a listener"),
        ("tcp", "-", "expected 1 names"),
        ("tcp tcp", "listen", "expected 2 names"),
        ("udp", "listen", "not one that listens on ADDRESS:PORT"),
        ("unix", "listen", "not one that listens on ADDRESS:PORT"),
    ],
)
def test_what_is_wrong_is_named_with_the_remedy(kinds: str, names: str, problem: str) -> None:
    found = given(kinds, names)
    assert problem in found
    assert "set " in found


def test_sockets_of_another_process_are_ignored() -> None:
    assert given("tcp", "listen", "1") == "{}"
    assert given_sockets({}) == {}
    assert for_another_process({}) == ""
    for pid in ("1", "", "x"):
        assert f"LISTEN_PID = {pid!r} is not this process" in for_another_process(
            {"LISTEN_PID": pid, "LISTEN_FDS": "1"}
        )
        assert for_another_process({"LISTEN_PID": pid, "LISTEN_FDS": "0"}) == ""
    for number in ("0", "-1", "²"):
        assert given_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": number}) == {}


def test_launch_knows_why_sockets_are_ignored() -> None:
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "listen"}
    launch = Launch.of(environment)
    assert "LISTEN_PID = '1'" in launch.ignored
    assert (launch.given, environment) == ({}, {})
    assert Launch.of({}).ignored == ""


def test_descriptor_that_is_not_open_is_named() -> None:
    code = "import os; from proxy.process.activation import given_sockets; os.closerange(3, 200)\n"
    code += "given_sockets({'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1', 'LISTEN_FDNAMES': 'listen'})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "file descriptor 3 (listen) cannot be used" in ended.stderr


def test_settings_have_the_addresses_of_the_sockets() -> None:
    loaded = load_settings({"listen": "192.0.2.1:5"}, {})
    with socket.create_server(("127.0.0.1", 0)) as made:
        activated = with_addresses(loaded, {"listen": (made,)})
        assert activated.settings.listen.port == made.getsockname()[1]
    assert activated.origins["listen"] == "socket of the service manager"
    assert with_addresses(loaded, {}) == loaded
