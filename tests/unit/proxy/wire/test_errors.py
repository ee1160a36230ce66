from __future__ import annotations

from proxy.wire.errors import ProtocolError


def test_protocol_error_has_a_reason_and_usually_no_farewell() -> None:
    error = ProtocolError("too short")
    assert (str(error), error.farewell) == ("too short", b"")
