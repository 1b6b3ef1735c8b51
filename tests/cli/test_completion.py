"""What a shell completes: names in the store that the line names, profiles, settings; else nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktxn import Consumer, Producer, TopicPartition
from sparktxn._programs.cli.app import run
from sparktxn._programs.cli.session import Session
from tests.cli.terminal import ok

HOSTILE = ["a; touch pwned", "$(touch pwned)", "two words", "new\nline", "`id`", "it's"]


@pytest.fixture(autouse=True)
def shop(folder: Path) -> None:
    ok("topics", "create", "orders", "offers", "trips")
    with Producer({"bootstrap.servers": "store", "transactional.id": "shop-1"}) as producer:
        producer.init_transactions()
    for group in ["accounts", *HOSTILE]:
        with Consumer({"bootstrap.servers": "store", "group.id": group}) as consumer:
            consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The words that bash is given for the end of `line`."""
    monkeypatch.setenv("_TXNLOG_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit, match="0"):
        run([])
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("txnlog topics describe o", ["offers", "orders"]),
        ("txnlog consume -t tr", ["trips"]),
        ("txnlog consume -b absent -t ", []),
        ("txnlog --store absent consume -t ", []),
        ("txnlog -X store.nothing=1 consume -t ", []),
        ("txnlog groups describe ", ["accounts"]),
        ("txnlog groups reset accounts --topic ", ["offers", "orders", "trips"]),
        ("txnlog transactions fence ", ["shop-1"]),
        ("txnlog topics alter orders --set retention.", ["retention.ms=", "retention.bytes="]),
        ("txnlog topics alter orders --unset table.h", ["table.history.ms"]),
        ("txnlog vacuum --set vacuum.ret", ["vacuum.retention.ms="]),
        ("txnlog maintain --set vacuum.ret", ["vacuum.retention.ms="]),
        ("txnlog settings --set o", ["offsets.retention.minutes="]),
        ("txnlog topics list -X store.f", ["store.fsync="]),
        ("txnlog topics list --profile s", ["staging"]),
    ],
)
def test_a_shell_completes_names_and_settings(
    line: str,
    expected: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "config" / "txnlog").mkdir(parents=True)
    (folder / "config" / "txnlog" / "profiles.toml").write_text('[staging]\nstore = "store"\n')
    assert completed(line, monkeypatch, capsys) == expected


def test_the_store_is_that_of_the_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ok("topics", "create", "elsewhere", "-b", "other")
    assert completed("txnlog -b other topics describe ", monkeypatch, capsys) == ["elsewhere"]
    assert completed("txnlog topics describe -b other ", monkeypatch, capsys) == ["elsewhere"]


def test_an_error_of_the_store_completes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(session: Session) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Session, "store", broken)
    assert completed("txnlog topics describe ", monkeypatch, capsys) == []


def test_profiles_that_cannot_be_read_complete_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config" / "txnlog").mkdir(parents=True)
    (folder / "config" / "txnlog" / "profiles.toml").write_text("not TOML")
    assert completed("txnlog topics list --profile ", monkeypatch, capsys) == []
