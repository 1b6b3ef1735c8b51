"""`txnlog transactions`, `producers`, `offsets` and `half`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparktxn import KafkaException, Producer
from tests.cli.shop import half_messages, open_transaction
from tests.cli.terminal import ok, txnlog


@pytest.fixture(autouse=True)
def topics() -> None:
    ok("topics", "create", "orders", "-p", "2")
    ok("produce", "-t", "orders", "-p", "0", "--transactional-id", "done", stdin=b"0\n1\n")


@pytest.fixture
def opened() -> Iterator[Producer]:
    producer = open_transaction("open [red]")
    yield producer
    producer.close()


def ids(*words: str) -> list[str]:
    return [row["transactional_id"] for row in ok("transactions", "list", "--json", *words).json]


class TestTransactions:
    @pytest.mark.usefixtures("opened")
    def test_they_are_listed_by_what_is_asked(self) -> None:
        assert ok("transactions", "list").lines == [
            "transactional id  producer id  state",
            "done                        0  CompleteCommit",
            "open [red]                  1  Ongoing",
        ]
        assert ids("--state", "ongoing") == ids("--producer-id", "1") == ids("--id", "op.*") == ["open [red]"]
        assert ids("--longer-than", "1d") == []
        assert len(ids("--longer-than", "0s")) == 2

    @pytest.mark.usefixtures("opened")
    def test_one_is_described(self) -> None:
        (row,) = ok("transactions", "describe", "open [red]", "--json").json
        assert row.pop("start_timestamp_ms") > 0
        assert row == {
            "transactional_id": "open [red]",
            "state": "Ongoing",
            "producer_id": 1,
            "producer_epoch": 0,
            "transaction": 1,
            "timeout_ms": 60_000,
            "prepared": False,
            "partitions": ["orders-0"],
        }
        lines = ok("transactions", "describe", "open [red]").lines
        assert "transactional id  open [red]" in lines
        assert "timeout           1 min" in lines

    @pytest.mark.parametrize("words", [("--start-offset", "3"), ("--producer-id", "1")])
    def test_one_is_aborted_and_its_producer_fenced(self, opened: Producer, words: tuple[str, str]) -> None:
        done = ok("transactions", "abort", "-t", "orders", "-p", "0", *words)
        assert (done.text, done.err) == ("", "aborted the transaction of producer 1\n")
        with pytest.raises(KafkaException, match="administrator"):
            opened.commit_transaction()
        assert ok("consume", "-t", "orders", "-e").lines == ["0", "1"]

    def test_ids_are_fenced(self, opened: Producer) -> None:
        (row,) = ok("transactions", "fence", "open [red]", "--json").json
        assert row == {"transactional_id": "open [red]", "producer_id": 1, "producer_epoch": 2, "fenced": True}
        with pytest.raises(KafkaException):
            opened.commit_transaction()

    def test_a_wrong_id_is_not_made_by_fencing(self) -> None:
        done = txnlog("transactions", "fence", "done", "absent")
        assert done.code == 1
        assert "txnlog transactions list shows" in done.err
        assert ids() == ["done"]
        assert ok("transactions", "describe", "done", "--json").json[0]["producer_epoch"] == 0

    @pytest.mark.usefixtures("opened")
    def test_hanging_ones_are_found(self) -> None:
        assert ok("transactions", "find-hanging").err == "no hanging transactions\n"
        (row,) = ok("transactions", "find-hanging", "--longer-than", "0s", "--json").json
        assert (row["topic"], row["partition"], row["start_offset"]) == ("orders", 0, 3)
        assert row["transactional_id"] == "open [red]"
        assert ok("transactions", "find-hanging", "--longer-than", "0s", "-t", "orders", "-p", "1").text == ""

    @pytest.mark.parametrize(
        ("words", "code", "expected"),
        [
            (("list", "--state", "Ongong"), 2, "did you mean 'Ongoing'?"),
            (
                ("list", "--longer-than", "long"),
                2,
                "--longer-than is 'long': expected a whole number with its unit, such as",
            ),
            (("list", "--id", "("), 1, "is not a regular expression"),
            (("describe", "absent"), 1, "txnlog transactions list shows"),
            (("abort", "-t", "orders", "-p", "0"), 2, "txnlog producers TOPIC shows both"),
            (("abort", "-t", "orders", "-p", "0", "--start-offset", "0"), 1, "no open transaction in orders-0 begins"),
            (("abort", "-t", "orders", "-p", "0", "--producer-id", "0"), 1, "no open transaction in orders-0 is of"),
            (("abort", "-t", "orders", "-p", "9", "--producer-id", "0"), 1, "not 9"),
            (("find-hanging", "-p", "0"), 2, "add --topic"),
        ],
    )
    def test_what_is_wrong_is_an_error(self, words: tuple[str, ...], code: int, expected: str) -> None:
        done = txnlog("transactions", *words)
        assert (done.code, done.text) == (code, "")
        assert expected in done.err


@pytest.mark.usefixtures("opened")
def test_producers_show_where_their_transactions_begin() -> None:
    rows = ok("producers", "orders", "--json").json
    assert [(row["producer_id"], row["last_sequence"], row["transaction_start_offset"]) for row in rows] == [
        (0, 1, None),
        (1, 0, 3),
    ]
    assert ok("producers", "orders", "-p", "1").err == "no producers\n"
    assert ok("producers", "orders", "-p", "0").lines[0].split()[:2] == ["topic", "partition"]
    assert txnlog("producers", "orders", "-p", "2").code == 1


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("stable", [3, 0]),
        ("latest", [4, 0]),
        ("earliest", [0, 0]),
        ("0", [0, None]),
        ("2200-01-01", [None, None]),
        ("max-timestamp", [0, None]),
    ],
)
def test_offsets_are_those_of_the_time(time: str, expected: list[int | None]) -> None:
    rows = ok("offsets", "orders", "--time", time, "--json").json
    assert [(row["topic"], row["partition"]) for row in rows] == [("orders", 0), ("orders", 1)]
    found = [row["offset"] for row in rows]
    assert found == expected or (time == "max-timestamp" and found[0] in (0, 1))


def test_wrong_offsets_are_errors() -> None:
    assert ok("offsets", "orders", "-p", "0").lines[1] == "orders          0       3          -"
    assert "or earliest, stable" in txnlog("offsets", "orders", "--time", "noon").err
    assert txnlog("offsets", "orders", "-p", "7").code == 1


class TestHalfMessages:
    def rows(self, state: str, *words: str) -> list[str]:
        return [row["transaction_id"] for row in ok("half", state, "--json", *words).json]

    def test_they_are_discarded_resumed_and_deleted(self) -> None:
        first, second = half_messages("one", "two")
        assert self.rows("pending") == self.rows("pending", "--group", "shop") == [first, second]
        assert self.rows("pending", "--group", "other") == self.rows("discarded") == []
        assert ok("half", "discard", "shop", first, second).err == (
            f"discarded {first} of group shop\ndiscarded {second} of group shop\n"
        )
        assert (self.rows("pending"), self.rows("discarded")) == ([], [first, second])
        assert ok("half", "resume", "shop", first, "--json").json == [
            {"group_id": "shop", "transaction_id": first, "resumed": True}
        ]
        assert (self.rows("pending"), self.rows("discarded")) == ([first], [second])
        assert "add --apply" in ok("half", "delete", "shop", second).err
        assert self.rows("discarded") == [second]
        assert [row["deleted"] for row in ok("half", "delete", "shop", second, "--apply", "--json").json] == [True]
        assert self.rows("discarded") == []
        assert "orders=1" in ok("half", "pending").text

    def test_what_is_not_discarded_is_not_deleted(self) -> None:
        (first,) = half_messages("one")
        for name in (first, "absent"):
            done = txnlog("half", "delete", "shop", name, "--apply")
            assert (done.code, done.text) == (1, "")
            assert "txnlog half discarded shows them" in done.err
        assert self.rows("pending") == [first]
        assert txnlog("half", "resume", "shop", "absent").code == 1
