"""For each alert: the series of its fault, and series next to it that are well and must not hide it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

__all__ = ["FAULTS", "Fault", "promtool_tests"]

_MINUTES = 500
_UNTIL = "8h"


class Fault(NamedTuple):
    """Series with their values by the minute, `start+step` is a line; and others that are well, of the same store."""

    series: dict[str, str]
    beside: Mapping[str, str] = MappingProxyType({})


def _aborts(labels: str, committed: str, aborted: str) -> dict[str, str]:
    name = "txnlog_transactional_id_transactions_total" if "transactional_id" in labels else "txnlog_transactions_total"
    return {
        f'{name}{{{labels},outcome="committed"}}': committed,
        f'{name}{{{labels},outcome="aborted"}}': aborted,
    }


def _writes(instance: str, call: str, five_s: str, ten_s: str) -> dict[str, str]:
    name = f'txnlog_client_call_seconds_bucket{{instance="{instance}",call="{call}"'
    return {f'{name},le="5.0"}}': five_s, f'{name},le="10.0"}}': ten_s, f'{name},le="+Inf"}}': ten_s}


FAULTS: dict[str, Fault] = {
    "TxnlogStoreUnreadable": Fault({'txnlog_up{instance="a"}': "0"}),
    "TxnlogStoreRefusesWrites": Fault(
        {'txnlog_store_writable{instance="a"}': "0"},
        {
            'txnlog_store_writable{instance="b"}': "1",
            'txnlog_up{instance="a"}': "1",
            'txnlog_client_write_failures_total{instance="w",kind="unanswered"}': "0+1",
        },
    ),
    "TxnlogStoreRefusesWrites, as a process says": Fault(
        {'txnlog_client_write_failures_total{instance="w",kind="refused"}': "0+1"},
        {
            'txnlog_client_write_failures_total{instance="w",kind="unanswered"}': "0",
            'txnlog_client_write_failures_total{instance="x",kind="refused"}': "7",
        },
    ),
    "TxnlogTransactionHangs": Fault(
        {
            'txnlog_open_transaction_age_seconds_max{instance="a"}': "0+60",
            'txnlog_open_transaction_age_seconds{instance="a",transactional_id="hangs"}': "0+60",
        },
        {
            'txnlog_prepared_transactions{instance="a"}': "100",
            'txnlog_prepared_transaction_age_seconds_max{instance="a"}': "30",
            'txnlog_open_transaction_age_seconds{instance="a",transactional_id="quick"}': "1",
        },
    ),
    "TxnlogPreparedTransactionWaits": Fault(
        {
            'txnlog_prepared_transactions{instance="a"}': "1",
            'txnlog_prepared_transaction_age_seconds_max{instance="a"}': "0+60",
        },
        {'txnlog_open_transaction_age_seconds_max{instance="a"}': "5"},
    ),
    "TxnlogLastStableOffsetStands": Fault(
        {
            'kafka_topic_partition_current_offset{instance="a",topic="t",partition="0"}': "100+10",
            'txnlog_topic_partition_last_stable_offset{instance="a",topic="t",partition="0"}': "90",
        },
        {
            'kafka_topic_partition_current_offset{instance="a",topic="t",partition="1"}': "100+10",
            'txnlog_topic_partition_last_stable_offset{instance="a",topic="t",partition="1"}': "90+10",
            'kafka_topic_partition_current_offset{instance="a",topic="idle",partition="0"}': "7",
            'txnlog_topic_partition_last_stable_offset{instance="a",topic="idle",partition="0"}': "7",
        },
    ),
    "TxnlogTransactionsAbort": Fault(
        _aborts('instance="a"', "0+10", "0+5"), _aborts('instance="a",transactional_id="x"', "0+100", "0+2")
    ),
    "TxnlogTransactionalIdAborts": Fault(
        _aborts('instance="a",transactional_id="x"', "0", "0+2"),
        _aborts('instance="a"', "0+1000", "0+2") | _aborts('instance="a",transactional_id="y"', "0+998", "1"),
    ),
    "TxnlogConsumerLagGrows": Fault(
        {
            'kafka_consumergroup_lag_sum{instance="a",consumergroup="g",topic="t"}': "20000+10",
            'kafka_consumergroup_lag{instance="a",consumergroup="g",topic="t",partition="0"}': "20000+10",
        },
        {'kafka_consumergroup_lag_sum{instance="a",consumergroup="h",topic="t"}': "9000-10"},
    ),
    "TxnlogConsumerLagGrows, of one partition": Fault(
        {'kafka_consumergroup_lag{instance="a",consumergroup="g",topic="t",partition="0"}': "20000+10"},
        {
            'kafka_consumergroup_lag{instance="a",consumergroup="g",topic="t",partition="1"}': "900000-20",
            'kafka_consumergroup_lag_sum{instance="a",consumergroup="g",topic="t"}': "920000-10",
        },
    ),
    "TxnlogGroupHasNoMembers": Fault(
        {
            'kafka_consumergroup_members{instance="a",consumergroup="g"}': "0",
            'kafka_consumergroup_lag_sum{instance="a",consumergroup="g",topic="t"}': "5",
        },
        {
            'kafka_consumergroup_lag_sum{instance="a",consumergroup="g",topic="done"}': "0",
            'txnlog_group_overdue_members{instance="a",consumergroup="g"}': "1",
            'kafka_consumergroup_members{instance="a",consumergroup="h"}': "2",
            'kafka_consumergroup_lag_sum{instance="a",consumergroup="h",topic="t"}': "5",
            'kafka_consumergroup_members{instance="a",consumergroup="finished"}': "0",
            'kafka_consumergroup_lag_sum{instance="a",consumergroup="finished",topic="t"}': "0",
        },
    ),
    "TxnlogNoVacuum": Fault(
        {'txnlog_last_vacuum_age_seconds{instance="a"}': "200000+60"},
        {'txnlog_last_entry_age_seconds{instance="a"}': "1"},
    ),
    "TxnlogNoVacuum, ever": Fault(
        {'txnlog_never_vacuumed_age_seconds{instance="a"}': "200000+60"},
        {'txnlog_never_vacuumed_age_seconds{instance="new"}': "0+60"},
    ),
    "TxnlogLogGrows": Fault(
        {'txnlog_entries_total{instance="a"}': "2000000", 'txnlog_horizon_entry{instance="a"}': "1"},
        {'txnlog_last_vacuum_age_seconds{instance="a"}': "60"},
    ),
    "TxnlogSmallFiles": Fault(
        {'txnlog_topic_small_files{instance="a",topic="t"}': "9000"},
        {'txnlog_topic_small_files{instance="a",topic="u"}': "0"},
    ),
    "TxnlogCallsFail": Fault(
        {
            'txnlog_client_call_seconds_count{instance="p",call="log_write"}': "0+100",
            'txnlog_client_call_failures_total{instance="p",call="log_write"}': "0+20",
        },
        {
            'txnlog_client_call_seconds_count{instance="p",call="fold"}': "0+10000",
            'txnlog_client_call_failures_total{instance="p",call="fold"}': "0",
        },
    ),
    "TxnlogWritesAreSlow": Fault(
        _writes("p", "log_write", "0+50", "0+100"),
        _writes("q", "log_write", "0+9000", "0+9000") | _writes("p", "fold", "0+9000", "0+9000"),
    ),
    "TxnlogRequestsAreRepeated": Fault(
        {
            'txnlog_client_requests_total{instance="p",request="put"}': "0+100",
            'txnlog_client_request_retries_total{instance="p"}': "0+20",
        },
        {
            'txnlog_client_requests_total{instance="p",request="get"}': "0+100",
            'txnlog_client_requests_total{instance="q",request="put"}': "0+9000",
            'txnlog_client_request_retries_total{instance="q"}': "0",
        },
    ),
    "TxnlogQueryFailed": Fault(
        {'txnlog_stream_failed{instance="s",query="q",query_id="1"}': "1"},
        {'txnlog_stream_failed{instance="s",query="q",query_id="2"}': "0"},
    ),
    "TxnlogQueryFallsBehind": Fault(
        {
            'txnlog_stream_backlog_seconds{instance="s",query="q",query_id="1"}': "1000",
            'txnlog_stream_running{instance="s",query="q",query_id="1"}': "1",
        },
        {
            'txnlog_stream_backlog_seconds{instance="s",query="q",query_id="2"}': "3",
            'txnlog_stream_running{instance="s",query="q",query_id="2"}': "1",
            'txnlog_stream_backlog_seconds{instance="s",query="ended",query_id="3"}': "1000",
            'txnlog_stream_running{instance="s",query="ended",query_id="3"}': "0",
        },
    ),
}
"""By the name of the alert, and what sets the case apart where an alert has two."""

_WELL = {
    'txnlog_up{instance="well"}': "1",
    'txnlog_open_transactions{instance="well"}': "3",
    'txnlog_open_transaction_age_seconds_max{instance="well"}': "5",
    'txnlog_prepared_transactions{instance="well"}': "3",
    'txnlog_prepared_transaction_age_seconds_max{instance="well"}': "20",
    'kafka_topic_partition_current_offset{instance="well",topic="t",partition="0"}': "100+10",
    'txnlog_topic_partition_last_stable_offset{instance="well",topic="t",partition="0"}': "90+10",
    'kafka_consumergroup_lag_sum{instance="well",consumergroup="g",topic="t"}': "10",
    'kafka_consumergroup_lag{instance="well",consumergroup="g",topic="t",partition="0"}': "10",
    'kafka_consumergroup_members{instance="well",consumergroup="g"}': "2",
    'txnlog_last_vacuum_age_seconds{instance="well"}': "600",
    'txnlog_entries_total{instance="well"}': "1000+10",
    'txnlog_horizon_entry{instance="well"}': "900+10",
    'txnlog_topic_small_files{instance="well",topic="t"}': "50",
    'txnlog_client_call_seconds_count{instance="well",call="log_write"}': "0+100",
    'txnlog_client_call_failures_total{instance="well",call="log_write"}': "0+1",
    'txnlog_client_requests_total{instance="well",request="put"}': "0+1000",
    'txnlog_client_request_retries_total{instance="well"}': "0+1",
    'txnlog_stream_failed{instance="well",query="q"}': "0",
    'txnlog_stream_running{instance="well",query="q"}': "1",
    'txnlog_stream_backlog_seconds{instance="well",query="q"}': "3",
    **_aborts('instance="well"', "0+100", "0+2"),
    **_aborts('instance="well",transactional_id="x"', "0+100", "0+2"),
    **_writes("well", "log_write", "0+100", "0+100"),
}


def promtool_tests(rules: str) -> str:
    """Return what `promtool test rules` reads: each fault alone, next to what is well, and what is well without it."""
    tests = [_test("all is well", _WELL, [])]
    for name, fault in FAULTS.items():
        alert = name.partition(",")[0]
        tests += [
            _test(f"{name}, alone", fault.series, [alert]),
            _test(f"{name}, next to what is well", {**_WELL, **fault.beside, **fault.series}, [alert]),
            _test(f"{name}, not there", {**_WELL, **fault.beside}, []),
        ]
    return yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": tests}, sort_keys=False)


def _test(name: str, series: dict[str, str], firing: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": one, "values": f"{values}x{_MINUTES}"} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": _UNTIL,
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing],
            }
        ],
    }
