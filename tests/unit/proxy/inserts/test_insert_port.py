from __future__ import annotations

from proxy.inserts.ingest import InsertHandler
from proxy.inserts.insert_port import InsertPort, Native
from proxy.inserts.native_inserts import NativeInserts


def test_the_handler_of_inserts_offers_the_whole_port() -> None:
    wanted = {name for name in vars(InsertPort) if not name.startswith("_")}
    assert wanted == {"ask", "elsewhere", "native", "retryable_writes", "submit"}
    # The constructor sets these attributes.
    assert wanted - {"elsewhere", "native", "retryable_writes"} <= set(dir(InsertHandler))


def test_native_inserts_offer_the_whole_port() -> None:
    wanted = {name for name in vars(Native) if not name.startswith("_")}
    assert wanted == {"begin", "fewest_bytes", "takes"}
    assert wanted - {"fewest_bytes"} <= set(dir(NativeInserts))
