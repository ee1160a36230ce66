"""What comes back from decoding to the byte, and what stays raw."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.bson.codec import encode
from catalog.bson.faithful import MAX_BYTES, MAX_LEVELS, MAX_VALUES, Opaque, Unfaithful, faithfully_decoded
from catalog.bson.raw import document, element
from tests.support.operands import SCALARS, array_of, object_of, value_of

LOSSY = frozenset(
    {
        "array with odd names", "bad text", "code with undefined in its scope", "document with a name twice", "pointer",
        "reference", "reference with more before it", "regex with unsorted flags", "symbol", "undefined",
    }
)  # fmt: skip


def values(names: Any) -> st.SearchStrategy[bytes]:
    """Element values of these kinds, inside documents and arrays too."""
    return st.recursive(
        st.sampled_from(sorted(names)).map(SCALARS.__getitem__),
        lambda inner: st.one_of(
            st.dictionaries(st.sampled_from(["a", "b", "$gt", "é", ""]), inner, max_size=3).map(object_of),
            st.lists(inner, max_size=3).map(lambda found: array_of(*found)),
        ),
        max_leaves=8,
    )


NAMED = st.sampled_from([b"a", b"b", b"$eq", b""])


@given(st.lists(st.tuples(NAMED, values(SCALARS)), max_size=4))
def test_what_is_decoded_comes_back_to_the_byte(elements: list[tuple[bytes, bytes]]) -> None:
    raw = document(element(name, value) for name, value in elements)
    try:
        decoded = faithfully_decoded(raw)
    except Unfaithful:
        return
    assert encode(decoded) == raw
    # Not even what only looks the same: a name kept twice, another type.
    assert len(decoded) == len(elements)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), values(SCALARS.keys() - LOSSY)))
def test_what_python_can_hold_is_decoded(fields: dict[str, bytes]) -> None:
    raw = object_of(fields)[1:]
    assert encode(faithfully_decoded(raw)) == raw


@pytest.mark.parametrize("name", sorted(LOSSY))
@pytest.mark.parametrize("wrap", [object_of, lambda fields: object_of({"x": array_of(object_of(fields))})])
def test_what_python_would_lose_is_not(name: str, wrap: Any) -> None:
    with pytest.raises(Unfaithful):
        faithfully_decoded(wrap({"x": SCALARS[name]})[1:])


def test_w98_what_is_too_large_to_be_analysed_is_not_decoded() -> None:
    nested: Any = 1
    for _ in range(MAX_LEVELS - 2):
        nested = {"a": nested}
    assert faithfully_decoded(bson.encode({"x": nested}))
    for large in (
        {"x": b"x" * MAX_BYTES},
        {"x": list(range(MAX_VALUES + 1))},
        {"x": [{"a": 1}] * (MAX_VALUES // 2 + 1)},
        {"x": {"padding": "x" * 1000, "x": [[nested]]}},
    ):
        with pytest.raises(Unfaithful):
            faithfully_decoded(bson.encode(large))


def test_w98_few_bytes_hold_no_more_levels_than_are_analysed() -> None:
    raw, levels = b"\x05\0\0\0\0", 1
    while levels <= MAX_LEVELS:
        raw, levels = document([element(b"", b"\x03" + raw)]), levels + 1
    with pytest.raises(Unfaithful):
        faithfully_decoded(raw)


def test_what_is_not_looked_into_goes_on_as_it_came() -> None:
    raw = object_of({"x": SCALARS["undefined"], "y": SCALARS["bad text"]})[1:]
    assert bson.encode({"q": Opaque(raw)}) == object_of({"q": b"\x03" + raw})[1:]
    assert Opaque(b"\x05\0\0\0\0")
    with pytest.raises(Unfaithful):
        Opaque(b"\x06\0\0\0\0")
    assert value_of({"a": 1})[1:] == Opaque(bson.encode({"a": 1})).raw
