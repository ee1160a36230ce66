"""Connections of the same program are recognised, in other workers, too."""

from __future__ import annotations

from bson import decode, encode

from proxy.admin.administrator import Administrator
from proxy.request.session import Session
from tests.support.sessions import session


def program(greeting: bytes = b"program", peer: str = "203.0.113.1") -> Session:
    made = session()
    made.peer, made.upstream.hello, made.has_client_metadata = peer, greeting, bool(greeting)
    return made


def test_own_connection_and_those_with_the_same_metadata() -> None:
    mine = program()
    administrator = Administrator.of(mine)
    assert administrator.is_program_of(mine)
    assert administrator.is_program_of(program())
    assert not administrator.is_program_of(program(b"other"))
    assert not administrator.is_program_of(program(peer="203.0.113.2"))


def test_without_metadata_only_the_own_connection() -> None:
    mine = program(b"")
    assert Administrator.of(mine).is_program_of(mine)
    assert not Administrator.of(mine).is_program_of(program(b""))


def test_in_another_worker() -> None:
    there = Administrator.from_document(decode(encode(Administrator.of(program()).as_document())))
    assert there.session is None
    assert there.is_program_of(program())
    assert not there.is_program_of(program(b"other"))
