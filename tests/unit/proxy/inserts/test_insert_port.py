from __future__ import annotations

from proxy.clients.server import NoIngest
from proxy.inserts.ingest import InsertHandler
from proxy.inserts.insert_port import Ingest


def test_both_handlers_of_inserts_offer_the_whole_port() -> None:
    wanted = {name for name in vars(Ingest) if not name.startswith("_")}
    for handler in (InsertHandler, NoIngest):
        # ``repeated`` is an attribute that the constructor sets.
        assert wanted - {"repeated"} <= set(dir(handler))
