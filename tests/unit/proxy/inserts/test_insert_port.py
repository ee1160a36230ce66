from __future__ import annotations

from proxy.inserts.ingest import InsertHandler
from proxy.inserts.insert_port import InsertPort


def test_the_handler_of_inserts_offers_the_whole_port() -> None:
    wanted = {name for name in vars(InsertPort) if not name.startswith("_")}
    assert wanted == {"documents_to_relay", "relay_begins", "relay_unseen", "retryable_writes", "submit"}
    # The constructor sets this attribute.
    assert wanted - {"retryable_writes"} <= set(dir(InsertHandler))
