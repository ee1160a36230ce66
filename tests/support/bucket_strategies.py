"""Generated buckets as the kernel writes them, and bytes that were BSON before something happened to them."""

from __future__ import annotations

from hypothesis import strategies as st

from catalog.kernel.rollover import Limits
from tests.support.kernels import INTERPRETED
from tests.support.measurement_strategies import series


@st.composite
def damaged(draw: st.DrawFn, documents: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were BSON before something happened to them."""
    data = bytearray(draw(documents))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.integers(0, 3)):
            case 0 if data:
                data[position] = draw(st.sampled_from([0, 1, 2, 3, 4, 5, 0xF, 0x10, 0x7F, 0xFF, data[position] ^ 1]))
            case 1:
                del data[position : position + draw(st.integers(1, 8))]
            case 2:
                data[position:position] = draw(st.binary(min_size=1, max_size=6))
            case _:
                del data[position:]
    if len(data) >= 4 and draw(st.booleans()):
        data[:4] = len(data).to_bytes(4, "little")
    return bytes(data)


one_document = series().map(lambda commands: commands[0][0])


@st.composite
def stored_buckets(draw: st.DrawFn) -> bytes:
    """Bucket documents as the kernel writes them."""
    documents = draw(series(reach_ms=60_000))[0]
    measurements = [INTERPRETED.parse_measurement(document, b"t", b"m") for document in documents]
    start_ms = INTERPRETED.rounded_start_ms(measurements[0].time_ms, 60)
    bucket_id = INTERPRETED.bucket_id(start_ms, (7).to_bytes(8, "big"))
    state = INTERPRETED.BucketState(bucket_id, b"t", b"m", measurements[0].meta, start_ms, 3_600_000, Limits())
    staged = [m for m in measurements if m.meta == measurements[0].meta and not state.try_stage(m)]
    return bytes(state.prepare(staged))
