"""Values of every type in the commands that a client may send before its login: as a server judges them."""

from __future__ import annotations

import pytest

from tests.support.access import GuardedMongod
from tests.support.bson_values import string
from tests.support.proxy import ProxyProcess
from tests.support.typed_commands import Asked, Make, cases, find, hello, insert


@pytest.mark.parametrize("make", [hello, insert, find], ids=lambda make: make.__name__)
def test_values_of_every_type_before_the_login(
    make: Make, guarded: GuardedMongod, guarded_proxy: ProxyProcess, mongod_version: tuple[int, ...]
) -> None:
    ends = Asked(guarded.port), Asked(guarded_proxy.port)
    differences = []
    for path, word, fields in cases(make, mongod_version):
        if path == "$db":
            # Whether a name is right is told before who asks.
            continue
        told = [end.says(fields | {"$db": fields.get("$db", string("admin"))}, anew=make is hello) for end in ends]
        if told[0] != told[1]:
            differences.append(f"{path}: {word}: {told[0]} natively, {told[1]} through the proxy")
    for end in ends:
        end.close()
    assert not differences, "\n".join(differences)
    assert "unexpected error" not in guarded_proxy.log
