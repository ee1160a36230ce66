"""What makes the forms is not trusted (``test_compressing`` and ``test_joining`` show what becomes of it)."""

from __future__ import annotations

import pytest

from catalog.background.replacing import Differs, Forms
from catalog.bson.codec import decode, encode
from catalog.parts import bucket_of, join
from tests.support.catalog_parts import START_MS, measurement

ROWS = [measurement(1000 * row, v=row, text="x" * 100) for row in range(9)]
BUCKET = bucket_of(b"twelve bytes", b"t", b"m", ROWS[0].meta, START_MS, ROWS)


def _never(fault: Differs) -> None:
    raise AssertionError


def test_what_is_made_rightly_is_given_back() -> None:
    forms = Forms(_never)
    smaller = forms.compressed(BUCKET, b"t")
    assert smaller is not None
    assert len(smaller) < len(BUCKET)
    assert Forms(_never, lambda document, time_field: None).compressed(BUCKET, b"t") is None
    parts = (BUCKET, BUCKET)
    assert forms.merged(parts, b"twelve bytes", b"t", b"m", 18) == join(parts, b"twelve bytes", b"t", b"m")


def _with_other_summaries(bucket: bytes, end: str) -> bytes:
    content = decode(bucket)
    content["control"][end]["v"] += 1
    return encode(content)


@pytest.mark.parametrize("end", ["min", "max"])
def test_summaries_are_held_against_the_rows(end: str) -> None:
    """Readers find rows by them."""
    with pytest.raises(Differs):
        Forms(_never).compressed(_with_other_summaries(BUCKET, end), b"t")
    forms = Forms(_never, merge=lambda *arguments: _with_other_summaries(join(*arguments), end))
    with pytest.raises(Differs):
        forms.merged((BUCKET, BUCKET), b"twelve bytes", b"t", b"m", 18)


def test_what_is_made_wrongly_says_nothing_of_values() -> None:
    with pytest.raises(Differs) as caught:
        Forms(_never, lambda document, time_field: document).compressed(BUCKET, b"t")
    with pytest.raises(Differs) as also:
        Forms(_never, merge=lambda documents, *_: documents[0]).merged((BUCKET, BUCKET), b"", b"t", b"m", 18)
    for fault in (caught, also):
        assert "x" * 20 not in str(fault.value)
        assert not [each for each in fault.value.args if not isinstance(each, str)]
