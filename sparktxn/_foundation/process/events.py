"""What the engine logs: each message by its name, with named fields, in one table. The connector has its own.

In a record `event` is the name, and `args` maps the names of the fields to their values. So a formatter can write both
as JSON (docs/monitoring.md, "Logs").
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from logging import DEBUG, ERROR, INFO, WARNING
from typing import Any, Final, NamedTuple


class Event(NamedTuple):
    """How a message is logged: its level, its text with the fields in it, and its logger."""

    level: int
    text: str
    logger: str = "sparktxn"


EVENTS: Final[dict[str, Event]] = {
    "azure_credentials_missing": Event(INFO, "%(text)s", "sparktxn.objectstore.azure"),
    "catalog_request_failed": Event(WARNING, "the catalog cannot answer %(method)s %(path)r: %(error)s"),
    "checkpoint_contradicts_log": Event(
        ERROR, "checkpoint after entry %(entry)d does not hold what the log says: %(problem)s"
    ),
    "checkpoint_damaged": Event(ERROR, "checkpoint after entry %(entry)d: %(error)s"),
    "checkpoint_not_adopted": Event(ERROR, "no checkpoint was adopted: %(error)s"),
    "checkpoint_not_copied": Event(WARNING, "the checkpoint after entry %(entry)d is not copied: %(error)s"),
    "checkpoint_not_kept": Event(WARNING, "checkpoint after entry %(entry)d, which is not usable: %(error)s"),
    "checkpoint_not_written": Event(WARNING, "no checkpoint was written or adopted: %(error)s"),
    "checkpoint_skipped": Event(ERROR, "checkpoint skipped: %(error)s"),
    "clock_behind": Event(
        WARNING,
        "this clock is %(behind_ms)d ms behind the log's newest timestamp, which is kept: set the clock "
        "right, here or where that entry was written",
    ),
    "console_request_failed": Event(WARNING, "the console cannot answer %(method)s %(path)r: %(error)s"),
    "create_unknown": Event(DEBUG, "%(reason)s; reading it back decides"),
    "drop_failed": Event(ERROR, "a handle was dropped without close(), and what it held could not be given back"),
    "exporter_scrape_failed": Event(WARNING, "the exporter cannot read the store: %(error)s"),
    "fold_failed": Event(
        WARNING,
        "small segments of %(store)r were not folded into larger files, and are left for %(retry_s)d s: "
        "%(kind)s: %(error)s",
    ),
    "fold_overtaken": Event(DEBUG, "a fold came too late: %(about)s: %(reason)s"),
    "gateway_join_refused": Event(DEBUG, "no join of member %(member_id)r to group %(group_id)s: %(error)s"),
    "gateway_login_failed": Event(
        WARNING,
        "a client at %(host)s cannot log in: %(error)s (so often since this was last said: %(failures)d)",
    ),
    "gateway_poll_failed": Event(WARNING, "the gateway cannot read the end of the log: %(error)s"),
    "gateway_request_failed": Event(ERROR, "the gateway has failed at a request of a client at %(peer)s"),
    "gateway_request_malformed": Event(WARNING, "a client at %(peer)s has sent what is not a request: %(error)s"),
    "gateway_request_unanswered": Event(
        WARNING, "the gateway could not answer a request of a client at %(peer)s, which may ask again: %(error)s"
    ),
    "group_command_failed": Event(DEBUG, "a command of group %(group_id)s failed: %(error)s"),
    "half_check_round_failed": Event(ERROR, "a round of checks has failed"),
    "half_checker_failed": Event(
        ERROR, "the checker has failed for half transaction %(transaction_id)r: it stays pending"
    ),
    "half_discarded": Event(
        WARNING,
        "half transaction %(transaction_id)r of group %(group_id)r was discarded after %(checks)d checks: "
        "AdminClient.resume_half_messages() makes it pending again",
    ),
    "half_end_refused": Event(WARNING, "the end of %(half)s was refused: %(reason)s"),
    "half_end_unknown": Event(WARNING, "%(half)s is not settled yet, a check will ask for it: %(reason)s"),
    "half_local_transaction_failed": Event(
        ERROR, "the local transaction of %(message)r has failed: its half message waits for a check"
    ),
    "half_not_claimed": Event(DEBUG, "no check of %(transaction_id)r: %(reason)s"),
    "half_not_settled": Event(
        WARNING, "half message %(transaction_id)r is not settled yet, a check will ask for it: %(error)s"
    ),
    "half_not_settled_by_check": Event(
        WARNING, "half transaction %(transaction_id)r was checked and not settled: %(error)s"
    ),
    "half_unreadable": Event(
        ERROR, "half transaction %(transaction_id)r of group %(group_id)r cannot be checked: %(error)s"
    ),
    "halves_not_checked": Event(WARNING, "half transactions were not checked: %(error)s"),
    "heartbeat_failed": Event(
        DEBUG, "member %(member_id)s of group %(group_id)s could not show that it lives: %(error)s"
    ),
    "hint_refused": Event(WARNING, "hint %(hint)s was not written, which is left to the next one: %(error)s"),
    "intent_not_applied": Event(ERROR, "intent %(intent_id)r cannot be applied: %(error)s"),
    "intent_not_taken_up": Event(WARNING, "an intent cannot be taken up: %(error)s"),
    "intent_perhaps_not_left": Event(DEBUG, "intent %(intent)s was perhaps not left: %(error)s"),
    "intents_not_deleted": Event(DEBUG, "settled intents were not deleted: %(error)s"),
    "intents_not_listed": Event(DEBUG, "intents were not listed: %(error)s"),
    "intents_not_read": Event(DEBUG, "intents were not read: %(error)s"),
    "list_not_written": Event(ERROR, "a list of commands cannot be written"),
    "member_expired": Event(
        INFO, "member %(member_id)s of group %(group_id)s has expired after %(after_ms)d ms (%(reason)s)"
    ),
    "member_left": Event(
        WARNING,
        "member %(member_id)s of group %(group_id)s has left it: its consumer did not poll for "
        "%(poll_interval_s)g s (max.poll.interval.ms)",
    ),
    "member_not_left": Event(
        DEBUG, "member %(member_id)s of group %(group_id)s has not left it, and its session ends: %(error)s"
    ),
    "members_not_read": Event(DEBUG, "the members of groups %(group_ids)s were not looked at: %(error)s"),
    "deletes_missed": Event(
        WARNING,
        "%(reader)s stands at offset %(position)d of partition %(partition)d of topic %(topic)s, where a compaction "
        "has removed deletes: a table that is made of the rows read so far may have deleted rows; make it anew from "
        "the beginning of the partition",
    ),
    "members_not_watched": Event(DEBUG, "the members of group %(group_id)s were not watched: %(error)s"),
    "offset_commit_failed": Event(WARNING, "offset commit of group %(group_id)s failed: %(error)s"),
    "offset_commit_given_up": Event(
        WARNING,
        "closing a consumer of group %(group_id)s gave up an offset commit that the store did not answer "
        "in time: %(partitions)s",
    ),
    "partitions_lost": Event(
        WARNING,
        "member %(member_id)s of group %(group_id)s has lost its partitions: they were given to others, or may be",
    ),
    "polled_without_partitions": Event(
        WARNING, "%(consumer)r is polled before subscribe() or assign(): it has no records to return"
    ),
    "position_reset": Event(
        WARNING,
        "partition %(partition)d of topic %(topic)s %(what)s (it has %(log_start_offset)d to "
        "%(log_end_offset)d): going on at %(position)d, as auto.offset.reset says",
    ),
    "producer_not_forgotten": Event(DEBUG, "producer %(producer_id)d is not forgotten yet: %(error)s"),
    "records_dropped_by_close": Event(
        WARNING, "closing %(client_id)s dropped %(records)d records that were not stored"
    ),
    "records_lost_at_exit": Event(
        WARNING,
        "the interpreter ends while %(records)d records of producer %(client_id)s wait to be stored, and "
        "they are lost: call flush() or close() before, and in a transaction commit_transaction()",
    ),
    "records_lost_by_drop": Event(
        WARNING,
        "producer %(client_id)s was dropped without close(), and %(records)d records that were not stored "
        "are lost: call flush() or close() before, and in a transaction commit_transaction()",
    ),
    "security_settings_ignored": Event(
        WARNING,
        "%(client)s: settings of brokers' security are ignored, as the object store has its own "
        "(storage.*): %(settings)s",
    ),
    "sender_failed": Event(ERROR, "the sender of producer %(client_id)s has failed"),
    "settings_ignored": Event(DEBUG, "%(client)s settings without a meaning here were ignored: %(settings)s"),
    "states_unknown": Event(WARNING, "no transaction has the states %(states)s: expected %(expected)s"),
    "store_did_not_answer": Event(WARNING, "the store did not answer, trying again: %(error)s"),
    "store_write_failed": Event(
        WARNING, "%(store)r takes no writes: %(error)s (failures since this was last said: %(failures)d)"
    ),
    "table_not_publishable": Event(WARNING, "a table of %(store)r is left to other processes: %(reason)s"),
    "tables_not_published": Event(
        WARNING, "tables of %(store)r were not published, and are tried again in %(retry_s)d s: %(kind)s: %(error)s"
    ),
    "time_out_not_proposed": Event(DEBUG, "no time-out was proposed: %(error)s"),
    "topics_not_refreshed": Event(DEBUG, "topics were not looked up again: %(error)s"),
    "transaction_left_open_by_close": Event(
        WARNING, "closing %(client_id)s left its transaction to the next init: %(error)s"
    ),
    "transaction_timed_out": Event(
        INFO, "transaction %(transaction)d of %(transactional_id)r timed out after %(open_ms)d ms: aborted"
    ),
    "vacuum_lists_everything": Event(INFO, "everything is listed: %(reason)s"),
}
"""All messages by name."""


def log_of(events: Mapping[str, Event]) -> Callable[..., None]:
    """Return the function that logs the messages of a table."""

    def log_event(event: str, /, *, exc_info: Any = False, **fields: Any) -> None:
        """Log the message `event` with its fields; with `exc_info` also the error that is handled, or the one given."""
        level, text, name = events[event]
        logger = logging.getLogger(name)
        if logger.isEnabledFor(level):
            # Without fields there is no mapping to format the text with.
            given = [fields] if fields else ()
            logger.log(level, text, *given, exc_info=exc_info, stacklevel=2, extra={"event": event})

    return log_event


log_event: Final = log_of(EVENTS)
"""Log a message of the engine."""
