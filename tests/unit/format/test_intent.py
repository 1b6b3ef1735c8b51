"""Intents as bytes."""

from __future__ import annotations

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import (
    CreateTopic,
    EndTxn,
    ExpireTransactionalId,
    InitProducerId,
    OffsetCommit,
    OffsetToCommit,
    SettleIntent,
    Vacuum,
)
from sparktxn._engine.format.entry import decode_intent, encode_intent, list_id, may_travel, seal_document
from sparktxn.errors import DamagedObject, FormatVersionError
from tests.each import each

TOKEN = "3d0f" * 5
NAME = names.intent(41, TOKEN)
END = EndTxn("job", 1, 2, 3, committed=True)
OFFSETS = OffsetCommit("request", "group", (OffsetToCommit(1, 0, 5),))


def test_what_is_decoded_is_what_was_encoded() -> None:
    intent = decode_intent(encode_intent(TOKEN, 41, [[END], [OFFSETS, END]]), NAME, 41, TOKEN)
    assert intent.lists == ((END,), (OFFSETS, END))
    assert (intent.base_entry, intent.intent, list_id(intent.intent, 1)) == (41, TOKEN, f"{TOKEN}-1")


def test_a_name_holds_the_base_and_the_token() -> None:
    assert f"_log/_intents/00000000000000000041-{TOKEN}.json" == NAME
    assert names.parse_intent(NAME) == (41, TOKEN)
    for other in ("_log/_intents/41.json", names.entry(41), NAME + "x", "_log/_intents/.lock"):
        assert names.parse_intent(other) is None


@each(
    [
        InitProducerId("request", "job"),
        CreateTopic("request", "topic", 1),
        ExpireTransactionalId("job", 1, 2, 3),
        SettleIntent("id", 1),
        Vacuum(1, 0),
    ]
)
@pytest.mark.holes(15)
def test_what_allocates_fences_or_decides_does_not_travel(command) -> None:
    assert not may_travel([END, command])
    with pytest.raises(DamagedObject, match="only its owner"):
        decode_intent(encode_intent(TOKEN, 41, [[END, command]]), NAME, 41, TOKEN)


@each(
    [
        (encode_intent(TOKEN, 41, [[END]]).replace(b"41", b"42", 1), "checksum"),
        (encode_intent(TOKEN, 40, [[END]]), "of entry 40"),
        (encode_intent("0" * 20, 41, [[END]]), "holds intent"),
        (encode_intent(TOKEN, 41, [[]]), "only its owner"),
        (seal_document(b'{"format":1,"intent":"x"}')[0], "not an intent"),
        (seal_document(b'{"format":1,"intent":"x","base_entry":1,"lists":[[{"type":1}]]}')[0], "not an intent"),
        (seal_document(b"[1]")[0], "not a JSON object"),
        (b"", "checksum"),
    ]
)
def test_another_object_is_not_an_intent(data: bytes, reason: str) -> None:
    with pytest.raises(DamagedObject, match=reason):
        decode_intent(data, NAME, 41, TOKEN)


def test_a_newer_format_is_said_to_be_one() -> None:
    with pytest.raises(FormatVersionError):
        decode_intent(seal_document(b'{"format":2}')[0], NAME, 41, TOKEN)
