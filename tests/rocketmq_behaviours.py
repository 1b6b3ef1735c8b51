"""What RocketMQ's transactional messages do, numbered: tests are marked with it (`pytest.mark.rocketmq("R10")`).

`here` says what is different in this store, and why. A page of the site is made from this list and from the marks.
Numbers with ``#`` are issues of apache/rocketmq: what is a defect there must not happen here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.kafka_behaviours import Behaviour

__all__ = ["ROCKETMQ_BEHAVIOURS", "ROCKETMQ_SECTIONS"]


def _section(title: str, rows: Iterable[tuple[str, str] | tuple[str, str, str]]) -> tuple[str, tuple[Behaviour, ...]]:
    return title, tuple(Behaviour(row[0], False, row[1], row[2] if len(row) > 2 else "") for row in rows)


_FIRST_WINS: Final = "the first settlement wins, and the other side gets an error that names the outcome"

ROCKETMQ_SECTIONS: Final[tuple[tuple[str, tuple[Behaviour, ...]], ...]] = (
    _section(
        "RocketMQ 4: sending and settling",
        [
            ("R1", "A half message is stored, and no consumer sees it.", "its records have no offsets until the commit, so it holds no reader up"),
            ("R2", "A producer without a listener refuses before it sends."),
            ("R3", "A delay on a transactional message: refused (5.5.0), or dropped in silence (before).", "refused, in both shapes"),
            ("R4", "A half send that fails: the error goes to the caller, and the local transaction does not run."),
            ("R5", "A half send that is stored in doubt: the local transaction does not run, the message counts as rolled back.", "a send is stored, or raises. After OutcomeUnknown the message may be stored: a check asks for it"),
            ("R6", "The local transaction runs once, on the sender's thread, before the send returns."),
            ("R7", "A listener that raises or returns nothing: UNKNOWN, and no error of the send."),
            ("R8", "A settlement that is lost is not an error: a check makes up for it.", "a warning in the log. With transaction.end.wait one that is refused raises"),
            ("R9", "A commit gives the message its place in its topic, with its body, keys, tags and born time.", "no copy: the commit's entry places the segment that the half message has stored"),
            ("R10", "A crash between delivery and op record delivers twice.", "delivered once: one entry settles and delivers. A restart asks for nothing that is settled"),
            ("R11", "A message that was rolled back is never visible."),
            ("R12", "UNKNOWN waits for a check."),
            ("R13", "A settlement under another group, or of a message that is not known, is refused."),
            ("R14", "After a custom immunity a settlement by the producer is refused: wait for the check.", "accepted at any age while the message is undecided"),
        ],
    ),
    _section(
        "RocketMQ 4: checks",
        [
            ("R15", "No check before the immunity (6 s, or the message's own); then one every 30 s.", "the immunity uses up no checks (there it does, #8311)"),
            ("R16", "Any live producer of the group is asked, also of another process; a check that reaches none still counts.", "only a check that a checker is called for counts, and start() is enough to be asked"),
            ("R17", "Each check keeps the transaction id and counts one more.", "nothing is stored again: a claim is one command"),
            ("R18", "After 15 checks, or the file retention, the message is discarded: kept, and never delivered.", "kept until an administrator resumes or deletes it; no age discards"),
            ("R19", "A checker that raises or answers UNKNOWN leaves the message pending."),
            ("R20", "Metrics: half messages by topic, commits and rollbacks.", "AdminClient.list_half_messages(), computed from the log"),
            ("R21", "Op records are batched, for up to 3 s.", "there are none: a settlement is in the next entry of its process, or in one of its own some milliseconds later"),
            ("R22", "After a restart checks resume where they stood.", "what is due is found by its time, in the log"),
        ],
    ),
    _section(
        "RocketMQ 5",
        [
            ("V1", "Transactions need a checker, and a producer that is started."),
            ("V2", "A second message in a transaction is refused.", "allowed, over several topics; strict_rocketmq=True refuses it"),
            ("V3", "A commit without a message is refused."),
            ("V4", "A transactional message has no message group, delivery time, lite topic or priority."),
            ("V5", "The topic must accept transactional messages, where that is checked.", "the topic setting message.type: normal refuses them, and reject.transaction.message, also of the whole store"),
            ("V6", "A settlement that fails raises ClientException.", "also the opposite of the outcome, after any restart; the same outcome again succeeds"),
            ("V7", "Checks run on one thread; an exception or UNSPECIFIED leaves the message pending."),
            ("V8", "A message may say itself when it is checked first."),
            ("V9", "The client makes the message ids; message id and transaction id are equal.", "of several messages, the transaction id is the message id of the first"),
            ("V10", "A body has 1 byte to 4 MiB."),
            ("V11", "A send that is repeated after a lost answer may leave two half messages.", "it leaves one: the repetition is known by the transaction id and its segments"),
            ("V12", "shutdown() stops the checks first."),
            ("V13", "The topic's name is the producer group.", "of several topics, that of the first message"),
        ],
    ),
    _section(
        "Issues of RocketMQ, and its integration test",
        [
            ("#544", "A message with its own immunity must be checked, also if its time is up in the same millisecond."),
            ("#1517", "What is settled is not asked for."),
            ("#2694", "Rolled back by a check, then committed by the producer: delivered there.", _FIRST_WINS),
            ("#8158-1", "Settled twice by the producer: there a second commit delivers again, and commit after rollback delivers.", _FIRST_WINS),
            ("#8158-2", "Committed by the producer while its check runs: delivered two or three times there.", "delivered once"),
            ("#8158-3", "Committed by the producer after a check: checked again there until it is discarded.", "not asked again"),
            ("#8158-4", "Committed by the producer after the discard: delivered there, and still among the discarded.", "refused, until an administrator resumes it"),
            ("IT", "TransactionalMsgIT: 120 messages, committed, rolled back or unknown, at once or by checks."),
        ],
    ),
)  # fmt: skip

ROCKETMQ_BEHAVIOURS: Final[dict[str, Behaviour]] = {
    behaviour.number: behaviour for _, behaviours in ROCKETMQ_SECTIONS for behaviour in behaviours
}
