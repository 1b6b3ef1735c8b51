from __future__ import annotations

from sparktxn._engine.format.checkpoint import HorizonMarker, decode_marker, encode_marker
from tests.each import each


def test_a_marker_names_checkpoints_in_order_and_is_never_empty() -> None:
    data = encode_marker({"b" * 20, "a" * 20})
    assert data == b'{"checkpoints":["%s","%s"]}' % (b"a" * 20, b"b" * 20)
    assert decode_marker(data) == HorizonMarker(("a" * 20, "b" * 20))
    assert decode_marker(encode_marker([])) == HorizonMarker(())
    assert encode_marker([])


@each([b"horizon", b"", b"{", b"[]", b'{"checkpoints":[1]}', b"\xff", b"[" * 100_000])
def test_what_is_no_marker_names_nothing(data: bytes) -> None:
    assert decode_marker(data) is None
