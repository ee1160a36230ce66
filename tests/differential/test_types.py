"""Every field of a command that the proxy reads, with a value of every BSON type: as a server judges it.

Each command goes to a native time-series collection and to one behind the proxy, whose bytes differ in nothing but the
database. What is compared is whether it is accepted, the code of its error, and how many documents it concerned.
"""

from __future__ import annotations

import pytest

from proxy.wire.framing import STRING, SYMBOL
from tests.support.bson_values import string, value_of
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.twins import Twins
from tests.support.typed_commands import (
    ACCEPTED,
    COMMANDS,
    TOO_LONG,
    Asked,
    Make,
    cases,
    hello,
    insert,
    refusal,
)


@pytest.mark.parametrize("make", COMMANDS, ids=lambda make: make.__name__)
def test_values_of_every_type_are_judged_as_by_a_server(
    make: Make,
    set_twins: Twins,
    replica_set: MongodProcess,
    proxy_rs: ProxyProcess,
    mongod_version: tuple[int, ...],
) -> None:
    set_twins.both({"create": "ts", "timeseries": {"timeField": "t", "metaField": "m"}})
    names = ("admin", "admin") if make is hello else (set_twins.native.name, set_twins.virtual.name)
    ends = Asked(replica_set.port), Asked(proxy_rs.port)
    refused = refusal(make, mongod_version)
    differences = []
    # A session is for one of them only.
    for (path, word, native), (_, _, virtual) in zip(*(cases(make, mongod_version) for _ in ends), strict=True):
        told = [
            end.says(fields | {"$db": fields.get("$db", string(name))}, anew=make is hello)
            for end, fields, name in zip(ends, (native, virtual), names, strict=True)
        ]
        if refused is not None and told[0] in (refused, ACCEPTED):
            # The proxy carries it out; natively it ends with the refusal or, before that, with its time limit.
            continue
        if told[0] == TOO_LONG and make is hello:
            # A member of a replica set cannot wait so long; the proxy waits a day at most.
            continue
        if path == "maxTimeMS":
            told = [each[:2] for each in told]
        if told[0] != told[1]:
            differences.append(f"{path}: {word}: {told[0]} natively, {told[1]} through the proxy")
    for end in ends:
        end.close()
    assert not differences, "\n".join(differences)
    assert "unexpected error" not in proxy_rs.log


def test_symbol_names_a_collection_where_servers_say_so(
    set_twins: Twins, replica_set: MongodProcess, proxy_rs: ProxyProcess
) -> None:
    """It neither passes the catalog by nor what is refused always, whatever else is in the command."""
    set_twins.both({"create": "ts", "timeseries": {"timeField": "t", "metaField": "m"}})
    taken = 'tsproxy_requests_total{command="insert",outcome="ok",way="ingest"}'
    before = proxy_rs.metrics().get(taken, 0)
    end = Asked(proxy_rs.port)
    database = string(set_twins.virtual.name)
    assert end.says(insert() | {"insert": string("ts", SYMBOL), "$db": database})[:3] == (1.0, None, 1)
    assert proxy_rs.metrics()[taken] == before + 1
    for kind in (STRING, SYMBOL):
        for size in (value_of(1000), (6, b""), value_of(None)):
            fields = {"convertToCapped": string("system.buckets.ts", kind), "size": size, "limit": string("x")}
            assert end.says(fields | {"$db": database})[:2] == (0.0, 166)
    end.close()
    assert replica_set.running
