"""What Kafka's transactions and groups do, numbered: tests are marked with the numbers (`pytest.mark.kafka("K59")`).

`must_have` marks what every transactional log needs. `here` says what is different in this store, and why. A behaviour
that has no meaning here has no test, and its `here` is the reason. A page of the site is made from this list and from
the marks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["BEHAVIOURS", "SECTIONS", "Behaviour"]


class Behaviour(NamedTuple):
    """One behaviour of Kafka's, and what this store makes of it where that is not the same."""

    number: str
    must_have: bool
    says: str
    here: str = ""


def _section(title: str, rows: Iterable[tuple[str, str] | tuple[str, str, str]]) -> tuple[str, tuple[Behaviour, ...]]:
    return title, tuple(
        Behaviour(row[0].rstrip("*"), row[0].endswith("*"), row[1], row[2] if len(row) > 2 else "") for row in rows
    )


_ONE_ENTRY: Final = "PREPARE_x and COMPLETE_x pass in one entry, so no client meets a transaction between the two"
_NO_VERSION_2: Final = (
    "the epoch grows only at the end of a prepared transaction. Each command names its transaction's number, so "
    "a late one ends only its own"
)

_EPOCHS: Final = "an epoch is the number of the entry that began it"
_ADVANCES: Final = "each entry advances all members as far as they can go"

SECTIONS: Final[tuple[tuple[str, tuple[Behaviour, ...]], ...]] = (
    _section(
        "InitProducerId",
        [
            ("K01*", "Without a transactional id: a fresh producer id, epoch 0, and nothing is remembered."),
            ("K02*", "An empty transactional id: INVALID_REQUEST."),
            ("K03*", "A transactional id that is not known gets a new producer id and epoch 0, whatever was expected."),
            ("K04*", "A timeout outside 1 to `transaction.max.timeout.ms` (900000): INVALID_TRANSACTION_TIMEOUT."),
            ("K05*", "Between transactions: the same producer id, epoch + 1, no partitions, no start time."),
            ("K06*", "While an end is being carried out: CONCURRENT_TRANSACTIONS, retriable.",
             f"{_ONE_ENTRY}. An init finds the transaction open, or ended; the client still asks again on this "
             "code"),
            ("K07*", "In an open transaction: it is fenced by one epoch and aborted, and the caller must ask again; then "
             "one more epoch.",
             "one init does both, in one entry; the epochs are the same two"),
            ("K08", "Another client has bumped twice between the check and the fence: PRODUCER_FENCED.",
             "an init that loses its slot is checked again behind the winner: with an expected epoch it is fenced"),
            ("K09*", "However often writing the fence fails, the epoch grows once."),
            ("K10*", "At epoch 32766, between transactions: a new producer id, epoch 0."),
            ("K11", "At epoch 32766, in an open transaction: 32767 is spent on the fence."),
            ("K12*", "With the current epoch expected: one bump; asked again after a lost answer: the same answer."),
            ("K13*", "An old producer that expects its own epoch after the init of a newer one: PRODUCER_FENCED."),
            ("K14", "Another producer id expected than the stored one: PRODUCER_FENCED."),
            ("K15", "A rotation of the producer id can be asked for again; an epoch before it is fenced."),
            ("K16*", "While a change of the transactional id is being written: CONCURRENT_TRANSACTIONS.",
             "nothing waits between check and write. Of two inits at once one wins the slot, and the other is checked "
             "again behind it and bumps once more"),
            ("K17", "Producer ids are unique under concurrent inits; a failure to allocate is reported.",
             "the state's counter moves with the entry that uses it: there are no blocks of ids to fetch"),
            ("K18", "Asked of a coordinator that is not the owner, or still loads: NOT_COORDINATOR, "
             "COORDINATOR_LOAD_IN_PROGRESS.",
             "every process is the coordinator once it has followed the log, and raises no refusal before it has"),
        ],
    ),
    _section(
        "Adding partitions, and verification",
        [
            ("K19*", "A transactional id that is not known, or belongs to another producer id: "
             "INVALID_PRODUCER_ID_MAPPING."),
            ("K20*", "An epoch below or above the stored one: PRODUCER_FENCED."),
            ("K21*", "While an end is being carried out: CONCURRENT_TRANSACTIONS.",
             f"{_ONE_ENTRY}. After the end the next transaction may begin at once"),
            ("K22*", "The first partition opens the transaction and sets its start time; later ones are added to the set."),
            ("K23*", "Partitions that are in the set already: success, and nothing is written."),
            ("K24", "No transactional id, or an empty one: INVALID_REQUEST."),
            ("K25*", "Verification: a partition of the open transaction passes, another is refused "
             "(TRANSACTION_ABORTABLE; INVALID_TXN_STATE to older clients).",
             "the entry that appends is the one that checks and registers, so there is nothing to verify before. An "
             "append that names another transaction than the open or next one is INVALID_TXN_STATE"),
            ("K26", "A transactional append where no transaction is open: INVALID_TXN_STATE."),
            ("K27", "A verification holds for one transaction only, never for a later one of the same producer.",
             "the transaction's number in each append does that"),
            ("K28", "Between verification and append the lowest sequence is remembered.",
             "there is no such interval: the check and the append are one entry"),
            ("K29", "One request with transactional batches of several producers: INVALID_PRODUCER_ID_MAPPING.",
             "each append names its own producer and is checked by it; one entry holds those of many"),
        ],
    ),
    _section(
        "EndTxn",
        [
            ("K30*", "A transactional id that is not known, or another producer id: INVALID_PRODUCER_ID_MAPPING."),
            ("K31*", "An epoch below or above the stored one: PRODUCER_FENCED."),
            ("K32*", "An open transaction: PREPARE_x is written, the caller answered, markers follow, COMPLETE_x.",
             "one entry is all of it, in every partition; the answer comes after it"),
            ("K33*", "The same end again: success."),
            ("K34*", "The opposite end, or any end of an empty state: INVALID_TXN_STATE."),
            ("K35*", "The same end while it is being carried out: CONCURRENT_TRANSACTIONS.",
             f"{_ONE_ENTRY}: the repetition is answered with success"),
            ("K36*", "Version 2: every end bumps the epoch and returns it to the client.", _NO_VERSION_2),
            ("K37*", "Version 2: an end that is repeated with the epoch before the bump is answered as the first one.",
             f"{_NO_VERSION_2}; a repetition is known by that number"),
            ("K38*", "Version 2: an abort of a transaction that nothing was added to is allowed; a commit is not.",
             "the client sends nothing for such a transaction, and the state refuses to end what has not begun"),
            ("K39", "Version 2: in an empty state the epoch before the stored one: PRODUCER_FENCED."),
            ("K40*", "Version 2: an end at epoch 32766 gives the next producer id, also when repeated.",
             f"{_NO_VERSION_2}; the producer id rotates there and at init (K10, K11, K15)"),
            ("K41", "A client that changes between the versions is answered correctly.",
             "there is one version of the protocol"),
            ("K42*", "No transactional id, or an empty one: INVALID_REQUEST."),
            ("K43", "A clock that goes back hinders no transition."),
        ],
    ),
    _section(
        "Time-outs, expiry, and the coordinator's log",
        [
            ("K44*", "An open transaction older than its timeout is fenced by one epoch and aborted; only open ones are. "
             "Its producer gets PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH from a produce.",
             "the reason says that it timed out, and after how long"),
            ("K45", "The sweep leaves alone what is changing, or has a higher epoch; a write that fails bumps once."),
            ("K46*", "A transactional id that is idle for `transactional.id.expiration.ms` is forgotten; never one with an "
             "open transaction."),
            ("K47", "If the removal cannot be written, nothing is forgotten."),
            ("K48*", "The transactional id has expired and its producer lives: the next call fails abortably, the abort "
             "initialises again, and the next transaction works."),
            ("K49", "The producer has expired in the partition, not the transactional id: the same producer id, "
             "epoch + 1, and it works."),
            ("K50*", "After a restart the state is what the log says; ends that were under way are completed.",
             "a replay of entries gives the state; none of them can leave an end half done"),
            ("K51", "Failures to write the coordinator's log are reported as COORDINATOR_NOT_AVAILABLE and the like, and leave "
             "nothing pending.",
             "they are the store's own errors: StoreUnavailable if nothing was sent, OutcomeUnknown otherwise, both "
             "retriable"),
            ("K52*", "A coordinator that lost its role between write and answer changes nothing.",
             "a client that loses the slot has written nothing, and is checked again behind the winner"),
            ("K53", "A damaged record of the coordinator's log does not stop the others.",
             "an entry decides for all, so one that cannot be read stops the process with its name. A damaged "
             "checkpoint, which is a cache, is skipped"),
            ("K54*", "A marker that could not be written is sent again, or dropped where the partition or the epoch is "
             "gone.",
             "there are no markers to send: the put of the one entry is resolved by reading its slot"),
            ("K55", "A partition that is deleted meanwhile does not hinder the end."),
        ],
    ),
    _section(
        "Appending to a partition",
        [
            ("K56*", "The next sequence is taken; a gap, or a lower one, is OUT_OF_ORDER_SEQUENCE_NUMBER."),
            ("K57*", "One of the last five batches again: success with its first offset and time, and nothing is written; "
             "the sixth: OUT_OF_ORDER_SEQUENCE_NUMBER."),
            ("K58*", "A batch that overlaps an earlier one in part: OUT_OF_ORDER_SEQUENCE_NUMBER."),
            ("K59*", "An epoch below the last one seen: INVALID_PRODUCER_EPOCH."),
            ("K60*", "A new epoch starts at sequence 0, and forgets the batches before it."),
            ("K61*", "0 follows 2147483647, also inside a batch; nothing else does."),
            ("K62*", "A producer that the partition does not know may start at any sequence."),
            ("K63", "UNKNOWN_PRODUCER_ID is not answered any more; clients still understand it."),
            ("K64*", "A marker for a producer without records here fences lower epochs and indexes nothing.",
             "a partition that got no records gets no control record; the transactional id's own epoch fences"),
            ("K65*", "An append outside the producer's open transaction in the partition: INVALID_TXN_STATE."),
            ("K66*", "A marker's epoch is not below the last one seen: INVALID_PRODUCER_EPOCH.",
             "an end names the epoch, and another one than the current is PRODUCER_FENCED: no marker comes later"),
            ("K67*", "A marker of an older coordinator: TRANSACTION_COORDINATOR_FENCED.",
             "the coordinator's epoch is the number of the deciding entry; a client that was paused loses the slot"),
            ("K68", "An append that is refused leaves the producer's state as it was."),
            ("K69", "A producer that is idle for `producer.id.expiration.ms` is forgotten; never one with an open "
             "transaction."),
            ("K70", "Offsets in a transaction carry no sequence: their epoch is checked."),
        ],
    ),
    _section(
        "Last stable offset, aborted ranges, reading",
        [
            ("K71*", "Without transactions the last stable offset is the end."),
            ("K72*", "It stays at the oldest open transaction, and jumps when that ends."),
            ("K73*", "read_committed returns something at every offset below it, nothing from it on."),
            ("K74*", "A log start inside an open transaction raises it."),
            ("K75*", "An abort, and only that, is indexed: producer, first offset, the marker's, and the last stable offset "
             "behind it."),
            ("K76*", "The index entry goes with the segment that holds the marker; last offsets only grow.",
             "a sealed run takes the part of Kafka's segment"),
            ("K77*", "The aborted transactions of a range: those that touch it, until an entry's last stable offset shows "
             "that no older one was open."),
            ("K78*", "A transaction over several segments is found in the index of a later one."),
            ("K79", "The index is asked for the offsets that are returned, not for all."),
            ("K80*", "A crash between the append and its index entry: the index is made again from the log.",
             "the index is made from the state when a run is sealed, and is durable before a checkpoint names it"),
            ("K81", "An index that contradicts itself is damage, and is rebuilt.",
             "it is damage and named; what it holds is in the entries, or in another checkpoint's copy"),
            ("K82", "Truncation drops the index entries from an offset on.", "a log is never cut off"),
            ("K83*", "Under read_committed the end, and the high watermark, are the last stable offset; offsets by time "
             "never lie at or above it."),
            ("K84*", "A fetch that waits while a transaction aborts still leaves it out."),
            ("K85", "A transaction open for longer than the longest timeout and five minutes is reported as late.",
             "`find_hanging_transactions` returns it on demand (K125)"),
            ("K86*", "The client leaves out aborted batches of their own producer alone; control records move the position "
             "and are never handed out.",
             "ranges are kept by producer, so no heap exists next to the records; sealed and single segments are "
             "filtered alike"),
        ],
    ),
    _section(
        "Producer snapshots, recovery, retention",
        [
            ("K87*", "A snapshot holds each producer's last batch and open transaction, with a CRC-32C.",
             "the file is Kafka's; the state keeps all five batches, so a reload recognises them all"),
            ("K88*", "Recovery is the newest snapshot and the log after it, and gives what a full replay gives.",
             "the snapshot that counts is the checkpoint"),
            ("K89", "A damaged snapshot is passed over: the one before it, or a full replay."),
            ("K90", "Nothing new since the last snapshot: no new one."),
            ("K91*", "Cutting off a marker opens its transaction again.",
             "a log is never cut off; a view of an older entry shows the transaction open again"),
            ("K92", "Cutting off everything forgets the producers.",
             "a log is never cut off; a topic that is created again has another id, and knows none of the old producers"),
            ("K93*", "Deleting records deletes no producer's state."),
            ("K94", "Snapshots are taken when a segment is rolled, and removed with it."),
            ("K95", "An empty control batch opens and closes nothing.", "control records are not stored"),
        ],
    ),
    _section(
        "Compaction",
        [
            ("K96*", "Nothing at or above the last stable offset is compacted."),
            ("K97*", "Records of aborted transactions are removed; the marker stays until they are gone.",
             "they go at once, and never win a key; a control record is an offset without an object"),
            ("K98*", "A commit's marker goes after its records, in two passes.",
             "control records are not stored; tombstones go in two passes, `delete.retention.ms` after the first"),
            ("K99*", "The last batch of an active producer survives, empty, for its sequence.",
             "producers are in the state, whatever becomes of their records (K93)"),
            ("K100", "Index entries of aborts that remain are written again.",
             "indexes of aborted transactions stay as they are"),
            ("K101", "A user's key is never taken for a marker's.",
             "control records are not records and have no key"),
            ("K102", "A transaction over segments that are compacted apart keeps its outcome."),
            ("K103", "Offsets do not change."),
        ],
    ),
    _section(
        "Offsets in transactions",
        [
            ("K104*", "A group's offsets wait for the commit, and vanish with an abort."),
            ("K105*", "A consumer that wants stable offsets gets UNSTABLE_OFFSET_COMMIT, retriable, while some wait."),
            ("K106*", "A wrong generation: ILLEGAL_GENERATION; an unknown member: UNKNOWN_MEMBER_ID; both abortable.",
             "a generation is a member epoch. A member that holds the partition since an older one is not refused"),
            ("K107*", "No generation and no member: accepted, and the group need not exist.",
             "refused with UNKNOWN_MEMBER_ID while the group has members"),
            ("K108*", "Of a plain commit and one in a transaction, the one that was written later stands."),
            ("K109", "A group whose offsets wait is not forgotten; deleting the group drops them."),
            ("K110*", "Offsets of a fenced producer: PRODUCER_FENCED.",
             "offsets travel with the next flush or the commit, and that reports it"),
            ("K111", "Metadata above `offset.metadata.max.bytes` fails its own partition: OFFSET_METADATA_TOO_LARGE.",
             "it fails the whole list: a transaction's offsets take effect together or not at all"),
            ("K112", "Metadata and leader epoch come back; a commit may return before its offsets are visible.",
             "a commit returns when every new reader sees it"),
        ],
    ),
    _section(
        "The producer's states",
        [
            ("K113*", "A call out of order is an illegal state."),
            ("K114*", "After an abortable error everything raises it but the abort; then the producer is ready."),
            ("K115*", "After a fatal error everything raises it, the abort too."),
            ("K116*", "A produce that fails makes the commit fail and the abort succeed; after a time-out the abort bumps "
             "the epoch.",
             "what timed out was named in no entry and used no sequence: only errors that leave sequences in doubt bump"),
            ("K117*", "A commit stores everything first; with a batch that failed there is no commit."),
            ("K118*", "An init, commit or abort that timed out is called again; another call is illegal meanwhile."),
            ("K119", "A transaction that has published nothing ends without a request."),
            ("K120*", "What an error means depends on the operation that it answers: fatal, abort, or call again.",
             "a topic that does not exist is not a passing state of some broker's metadata: abort"),
            ("K121", "Outside transactions, OUT_OF_ORDER_SEQUENCE_NUMBER leads to a new identity and to sequences from 0."),
        ],
    ),
    _section(
        "Administration and prepared transactions",
        [
            ("K122*", "Transactions are listed by state, producer id, duration and a pattern of the id; unknown states are "
             "reported."),
            ("K123*", "A transactional id is described: state, identity, timeout, start, partitions; unknown: "
             "TRANSACTIONAL_ID_NOT_FOUND."),
            ("K124", "A partition's producers are described."),
            ("K125*", "Hanging transactions: open in a partition for longer than the longest timeout, and known to no "
             "transactional id that has the partition."),
            ("K126", "A hanging transaction is aborted in its partition, by its start or its producer.",
             "an end is one entry for all partitions: it ends the whole transaction"),
            ("K127*", "Fencing a transactional id is an init: a producer that runs is fenced at its next call."),
            ("K128", "With two-phase commit a transaction has no timeout.",
             "a prepared transaction has none; one that is not prepared keeps its own"),
            ("K129", "Preparing stores everything, and gives a token; then the transaction can only be ended."),
            ("K130", "Completing with the token of the prepared state commits, with another one aborts."),
            ("K131", "init_transactions(keep_prepared=True) keeps what is prepared."),
            ("K132", "Of a kept transaction only the newest identity may decide."),
        ],
    ),
    _section(
        "End to end",
        [
            ("K133*", "Two topics, one record of each aborted and one committed: read_committed reads two, "
             "read_uncommitted four."),
            ("K134*", "A producer that was taken over is fenced, whether it commits, sends, sends offsets or adds "
             "partitions; the transaction of the newer one commits."),
            ("K135", "20 partitions with 10,000 aborted and 1,000 committed records: read_committed reads 1,000, "
             "read_uncommitted 11,000."),
            ("K136*", "Something fails inside a transaction, it is aborted, and the next one works, with a higher epoch.",
             "the epoch grows where sequences are in doubt, and stays where nothing was stored"),
            ("K137", "While the store is down, init, commit and abort fail within their timeout.",
             "sending offsets is local: they travel with the next flush or the commit"),
            ("K138*", "Copying in transactions while processes die and requests fail: each record once."),
        ],
    ),
    _section(
        "Members of consumer groups",
        [
            ("G01*", "The first member of an empty group gets all partitions (testMemberJoinsEmptyConsumerGroup).",
             "in the entry of its join"),
            ("G02*", "A member that joins begins a new epoch with new targets (testNewJoiningMemberTriggersNewTarget"
             "Assignment).", _EPOCHS),
            ("G03*", "So does a changed subscription (testUpdatingSubscriptionTriggersNewTargetAssignment)."),
            ("G04*", "So does a member that leaves (testLeavingMemberBumpsGroupEpoch)."),
            ("G05*", "An epoch above the member's is FENCED_MEMBER_EPOCH; a lost answer is asked for again (testConsumer"
             "GroupMemberEpochValidation).",
             "a lower epoch is accepted: a member learns of its epoch from the log, and may be behind. It is not asked "
             "which partitions it owns"),
            ("G06*", "Three members, from start to stable, step by step (testReconciliationProcess).",
             f"a step needs no heartbeat: {_ADVANCES}"),
            ("G07*", "A member that loses partitions is asked to give them back, and keeps its epoch until it has "
             "(testStableToUnrevokedPartitions, testUnrevokedPartitionsToStable).",
             "it may be asked for more meanwhile"),
            ("G08*", "A member that is to have partitions of another one waits for them, and takes what is free "
             "(testStableToUnreleasedPartitions, testUnreleasedPartitionsToStableWithNewPartitions).", _ADVANCES),
            ("G09*", "A member that owes partitions gets no new ones (testRemainsInUnrevokedPartitions)."),
            ("G10*", "A partition whose target changes again before it was given back goes to the last target. It stays, "
             "if that is its holder (testUpdatingMemberUpdatesPartitionEpochWhenPartitionIsReassigned"
             "BeforeBeingRevoked)."),
            ("G11*", "A member without a sign of life for its session time-out is taken out, unless it has given one "
             "(testSessionTimeoutLifecycle, testSessionTimeoutExpiration).",
             "any process proposes it, and names the last sign of life that it knows of"),
            ("G12*", "So is a static member that is away (testSessionTimeoutExpirationStaticMember)."),
            ("G13*", "So is a member that does not give back within its rebalance time-out (testRebalanceTimeout"
             "Expiration).",
             "the time begins anew whenever what it owes changes"),
            ("G14*", "A static member that returns gets its partitions back, and no other member loses one (testStatic"
             "MemberGetsBackAssignmentUponRejoin, testNoGroupEpochBumpWhenStaticMemberTemporarilyLeaves).",
             "under another member id it begins an epoch, which fences what the one before has sent"),
            ("G15*", "A static member that returns with other topics gets a new target (testStaticMemberRejoinsWithNew"
             "SubscribedTopics)."),
            ("G16*", "A newcomer with an instance id in use is UNRELEASED_INSTANCE_ID; the wrong member id for one is "
             "FENCED_INSTANCE_ID (testShouldThrownUnreleasedInstanceIdExceptionWhenNewMemberJoinsWithInUseInstanceId).",
             "under `group.protocol=classic` the newcomer takes the place at once, as in Kafka"),
            ("G17", "A group that is full takes no member: GROUP_MAX_SIZE_REACHED (testNewMemberIsRejectedWithMaximum"
             "MembersIsReached).", "10,000 members; Kafka's default has no limit"),
            ("G18*", "New partitions, and topics that are created or deleted, change targets (testOnNewMetadataImage).",
             "in the entry that changes the topic"),
            ("G19*", "A commit of an unknown member is UNKNOWN_MEMBER_ID. STALE_MEMBER_EPOCH is that of a member that "
             "does not hold the partition in the epoch that it names (testConsumerGroupOffsetCommitWithStaleMember"
             "Epoch and its like, KIP-1251).",
             "also in the present epoch: a member commits for partitions that it holds, and for no others"),
            ("G20*", "In a transaction these are UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION (testConsumerGroupTransactional"
             "OffsetCommitWithStaleMemberEpoch).",
             "Kafka accepts the metadata of no member while the group has members: here it is UNKNOWN_MEMBER_ID"),
            ("G21*", "`uniform` divides partitions evenly and moves few of them; `range` gives runs of each topic "
             "(RangeAssignorTest, OptimizedUniformAssignmentBuilderTest, UniformHeterogeneousAssignmentBuilderTest).",
             "with other deals than Kafka's where several are equally good"),
            ("G22*", "A group is EMPTY, RECONCILING, STABLE or DEAD, and is described with its members (testConsumerGroup"
             "States, testConsumerGroupDescribeNoErrors)."),
            ("G23*", "What goes is revoked, with its offsets, before what comes is assigned; a member without partitions "
             "is called with none (testListenerCallbacksBasic, "
             "testMemberJoiningCallsRebalanceListenerWhenReceivingEmptyAssignment)."),
            ("G24*", "An automatic offset commit that fails does not hold up the release "
             "(testReconcilePartitionsRevokedWithFailedAutoCommitCompletesRevocationAnyway)."),
            ("G25*", "A member that was taken out is called with what it has lost, and joins again "
             "(testOnPartitionsLostNoError).", "under another member id"),
            ("G26*", "One whose user does not poll for `max.poll.interval.ms` leaves, and comes back with the next polls "
             "(testPollTimerExpiration, testStaleMemberRejoinsWhenTimerResetsNoCallbacks)."),
            ("G27*", "A new owner waits while a transaction holds an offset of its partition "
             "(testFetchOffsetsWithPendingTransactionalOffsets)."),
        ],
    ),
)  # fmt: skip

BEHAVIOURS: Final[dict[str, Behaviour]] = {
    behaviour.number: behaviour for _, behaviours in SECTIONS for behaviour in behaviours
}
