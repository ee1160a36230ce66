from __future__ import annotations

from proxy.inserts.ingest import InsertHandler
from proxy.inserts.insert_port import Ingest


def test_the_handler_of_inserts_offers_the_whole_port() -> None:
    wanted = {name for name in vars(Ingest) if not name.startswith("_")}
    assert wanted == {"retryable_writes", "submit"}
    # ``retryable_writes`` is an attribute that the constructor sets.
    assert wanted - {"retryable_writes"} <= set(dir(InsertHandler))
