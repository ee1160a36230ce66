"""Times for which bucket ids are in the order of time; both forms of the kernel."""

from __future__ import annotations

from typing import Any

import pytest
from bson import DatetimeMS, encode
from hypothesis import given
from hypothesis import strategies as st

from catalog.kernel.rollover import ID_RANGE_MS
from tests.support.bucket_strategies import damaged
from tests.support.kernels import FORMS, INTERPRETED, KERNELS

PLAIN = encode({"x": 1, "t": DatetimeMS(0), "t2": "no time"})


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Any:
    return KERNELS[request.param]


def counted(kernel: Any, *documents: bytes) -> int:
    return int(kernel.count_plain_times((b"".join(documents),), 0, b"t", b"m"))


@pytest.mark.parametrize(
    ("document", "is_plain"),
    [
        (encode({"t": DatetimeMS(0)}), True),
        (encode({"t": DatetimeMS(ID_RANGE_MS - 1)}), True),
        (encode({"t": DatetimeMS(-1)}), False),
        (encode({"t": DatetimeMS(ID_RANGE_MS)}), False),
        (encode({"t": 5}), False),
        (encode({"tt": DatetimeMS(5), "d": {"t": DatetimeMS(5)}}), False),
        (encode({}), False),
        (b"\0", False),
        (b"\4\0\0\0", False),
        (b"\x0c\0\0\0\x09t\0\0\0\0\0\0", False),
    ],
)
def test_one_document_decides(kernel: Any, document: bytes, is_plain: bool) -> None:
    assert counted(kernel, document) == is_plain
    assert counted(kernel, PLAIN, document, PLAIN) == 3 * is_plain
    assert kernel.count_plain_times([PLAIN, document, PLAIN], 0, b"t", b"m") == 3 * is_plain


def test_of_a_repeated_name_the_first_counts(kernel: Any) -> None:
    first, second = (encode({"t": DatetimeMS(time)})[4:-1] for time in (-1, 1))
    body = first + second
    document = (len(body) + 5).to_bytes(4, "little") + body + b"\0"
    assert not counted(kernel, document)


def with_element(element: bytes, *, first: bool) -> bytes:
    rest = encode({"t": DatetimeMS(0)})[4:-1]
    body = element + rest if first else rest + element
    return (len(body) + 5).to_bytes(4, "little") + body + b"\0"


@pytest.mark.parametrize("first", [True, False])
def test_w35_an_undefined_meta_value_is_not_left_to_the_server(kernel: Any, first: bool) -> None:
    """It stores it, and cannot read the bucket."""
    document = with_element(b"\x06m\0", first=first)
    assert not counted(kernel, document)
    assert not counted(kernel, PLAIN, document)
    assert kernel.count_plain_times((document,), 0, b"t", None) == 1
    assert counted(kernel, with_element(b"\x06x\0", first=first)) == 1
    assert counted(kernel, with_element(b"\x0am\0", first=first)) == 1


def test_part_of_a_message(kernel: Any) -> None:
    data = b"before" + PLAIN + PLAIN
    assert kernel.count_plain_times((data,), 6, b"t", b"m") == 2
    assert kernel.count_plain_times((data, PLAIN, PLAIN + PLAIN), 6, b"t", b"m") == 5
    assert kernel.count_plain_times((data,), len(data), b"t", b"m") == 0
    assert kernel.count_plain_times((), 0, b"t", b"m") == 0
    for start in (-1, len(data) + 1):
        with pytest.raises(ValueError, match="no part"):
            kernel.count_plain_times((data,), start, b"t", b"m")


@given(damaged(st.sampled_from([PLAIN, encode({"s": "text", "a": [1, 2], "t": DatetimeMS(7), "o": {"t": 5}})])))
def test_both_forms_agree_on_damaged_documents(document: bytes) -> None:
    assert len({counted(form, PLAIN, document) for form in FORMS}) == 1
    assert len({form.count_plain_times((PLAIN, document), 0, b"t", b"m") for form in FORMS}) == 1


def test_it_is_what_the_parser_finds(kernel: Any) -> None:
    assert counted(kernel, PLAIN) == 1
    assert INTERPRETED.parse_measurement(PLAIN, b"t", None).time_ms == 0
