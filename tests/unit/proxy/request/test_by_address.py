from __future__ import annotations

from proxy.request.by_address import ByAddress


def test_the_oldest_of_the_busiest_address_is_found() -> None:
    items: ByAddress[str] = ByAddress()
    items.add("a", "first")
    for item in ("second", "third"):
        items.add("b", item)
    assert items.oldest_of_busiest() == ("b", "second")
    assert (len(items), items.of("a"), items.of("b"), items.of("c")) == (3, 1, 2, 0)
    assert items.remove("b", "second")
    assert not items.remove("b", "second")
    assert not items.remove("c", "third")
    assert items.oldest_of_busiest() == ("a", "first")
    items.clear()
    assert (len(items), items.of("a")) == (0, 0)
