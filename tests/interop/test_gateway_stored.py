"""A gateway that stores the records of open transactions: what differs from a broker while it holds them in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.broker import Broker
from tests.interop.differential.comparing import same
from tests.interop.gateway import franzgo, librdkafka
from tests.interop.gateway.listed import DIFFERING, LIBRDKAFKA, WITH_STORED_TRANSACTIONS
from tests.interop.gateway.serving import Gateway
from tests.interop.test_gateway_differential import UNSTABLE, verdicts

pytestmark = pytest.mark.interop

TEST_S = 240


def test_franz_go_finds_the_offset_of_each_record_of_a_transaction(tmp_path: Path) -> None:
    try:
        binary = franzgo.build()
    except franzgo.CannotBuildError as error:
        pytest.skip(f"franz-go's tests cannot be had here: {error}")
    with Gateway(tmp_path, stores_transactions=True) as served:
        for name in ("TestTxnEtl", "TestGroupETL"):
            outcome = franzgo.run(binary, served.address, name, records=2_000, timeout_s=TEST_S)
            assert outcome.verdict == "PASS", outcome.output[-3000:]


def test_librdkafka_reads_what_is_open_and_what_was_aborted(tmp_path: Path) -> None:
    try:
        tests = librdkafka.build()
    except librdkafka.CannotBuildError as error:
        pytest.skip(f"librdkafka's tests cannot be had here: {error}")
    verdicts = {}
    with Gateway(tmp_path, partition_count=4, stores_transactions=True) as served:
        for number in sorted(WITH_STORED_TRANSACTIONS & LIBRDKAFKA.keys()):
            verdicts[number], output = librdkafka.run(tests, served.address, number, tmp_path, TEST_S)
            print(number, verdicts[number], output[-3000:])
    assert verdicts
    assert {*verdicts.values()} == {"PASSED"}, verdicts


def test_a_program_sees_the_same_as_at_a_broker(confluent: Path, broker: Broker, tmp_path: Path) -> None:
    there = verdicts(confluent, broker.address, tmp_path / "there.json")
    with Gateway(tmp_path, creates_topics=False, stores_transactions=True) as served:
        here = verdicts(confluent, served.address, tmp_path / "here.json")
    differing = {name for name in there if not same(there[name], here[name])} - UNSTABLE
    expected = DIFFERING.keys() - WITH_STORED_TRANSACTIONS
    assert differing == expected, {name: (there[name], here[name]) for name in differing ^ expected}
