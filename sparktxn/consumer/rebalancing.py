"""What becomes of the assignment when the group's state changes, and the callbacks that say so.

All of it runs on the user's thread, inside poll(), consume(), unsubscribe() and close(). At a change the order is: what
goes is delivered no more; `on_revoke`; its stored offsets and its release travel in one list; `on_assign`.

Under ``group.protocol=consumer`` and ``cooperative-sticky`` the callbacks get what goes and what comes. Under the other
strategies they get the whole assignment: everything is revoked, and assigned again, from the committed offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from sparktxn._engine.log.log import CLOSE_TIMEOUT_S
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._foundation.process.clock import Clock
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.structs import MemberState
from sparktxn._kafka.message import OFFSET_INVALID, ErrorMessage, TopicPartition
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn.consumer.assignment import Assignment, Progress, RebalanceCallback
from sparktxn.consumer.member import MemberEvent, Membership, Seen, Status
from sparktxn.consumer.offsetcommits import Commits
from sparktxn.consumer.polling import Gathering, Reading
from sparktxn.consumer.threadturns import ConsumerTurns
from sparktxn.errors import ErrorCode, KafkaError, KafkaException

_PARTIAL_S: Final = 3.0
"""How long a member without incremental callbacks waits for the rest of its partitions, to be called once."""


class Rebalancing:
    """Follows one consumer's membership. `held` is what its user was given and has not lost.

    Args:
        user: what callbacks get as their first argument, or None once it is gone.
    """

    def __init__(
        self,
        user: Callable[[], Any],
        settings: ConsumerSettings,
        membership: Membership,
        assignment: Assignment,
        reading: Reading,
        commits: Commits,
        clock: Clock,
        turns: ConsumerTurns,
    ) -> None:
        self._turns = turns
        self._user = user
        self._settings = settings
        self._membership = membership
        self._assignment = assignment
        self._reading = reading
        self._commits = commits
        self._clock = clock
        self._held: set[TopicPartitionKey] = set()
        self._is_assigned = False
        self._partial_since_s: float | None = None
        self._releasing: int | None = None
        self._is_calling = self._is_revoking = False
        self._was_chosen = False
        self._idle_reported = False
        self._departing: list[TopicPartition] = []

    # What the user chooses

    def check_whole(self) -> None:
        """Note that the user assigns a whole list, in a callback or outside of one.

        Raises:
            KafkaException: ``_STATE``: a callback of incremental lists has to use the incremental calls.
        """
        self._was_chosen = True
        if self._is_calling and self._settings.is_incremental:
            raise _wrong_call("assign() and unassign()", "incremental_assign() and incremental_unassign()")

    def check_incremental(self) -> None:
        """Note that the user assigns or takes away some partitions.

        Raises:
            KafkaException: ``_STATE``: a callback of whole lists has to use assign() or unassign().
        """
        self._was_chosen = True
        if self._is_calling and not self._settings.is_incremental:
            raise _wrong_call("incremental_assign() and incremental_unassign()", "assign() and unassign()")

    def subscribe(self) -> None:
        """Join the group at the next poll, or change the topics; what assign() has given is dropped."""
        if self._membership.status in (Status.OUT, Status.FAILED):
            self._drop_assigned()
        else:
            self._reading.give_back()
        if self._membership.status is Status.FAILED:
            self._membership.begin_anew()
        self._membership.move(MemberEvent.SUBSCRIBED)

    def leave(self) -> None:
        """Leave the group, if the consumer is in it: on_revoke, then the stored offsets with the leave in one list.

        Partitions that assign() has given are dropped after their stored offsets are on their way. Where another thread
        leaves, or runs another callback, this waits for it first.
        """
        self._turns.waits_for_callbacks(CLOSE_TIMEOUT_S)
        membership = self._membership
        if membership.status is Status.OUT:
            self._drop_assigned()
            return
        if membership.status is Status.MEMBER and membership.life.is_over(self._clock.monotonic_s()):
            membership.move(MemberEvent.GONE)
        if membership.status is Status.LOST:
            self._call_lost()
        try:
            self._revoke(self._held)
        finally:
            self._take_all()
            self._leave_group(self._departing)
            membership.move(MemberEvent.UNSUBSCRIBED)
            membership.begin_anew()
            self._forget()

    def _leave_group(self, offsets: Sequence[TopicPartition] = ()) -> None:
        leave = self._membership.leaving()
        if leave is not None:
            self._commits.hand_over(offsets, leave)

    def _drop_assigned(self) -> None:
        self._reading.give_back()
        self._commits.commit_at_last()
        self._take_all()
        self._forget()

    def _forget(self) -> None:
        self._is_assigned = False
        self._partial_since_s = None
        self._releasing = None
        self._idle_reported = False
        self._departing = []

    # What the group's state says

    def check_life(self, now_s: float) -> bool:
        """Stop delivering once the others may take the partitions: `on_lost`, and a new life.

        Return False if nothing may be handed out: messages that were taken are returned first.

        Raises:
            KafkaException: ``UNKNOWN_MEMBER_ID``: a transaction's block is open, and can only be aborted.
        """
        membership = self._membership
        if membership.status is not Status.MEMBER or not membership.life.is_over(now_s):
            return True
        self._reading.give_back()
        if self._reading.states.gathering is not Gathering.NONE:
            return False
        if self._commits.held:
            reason = (
                f"this consumer has lost its partitions of group {self._settings.group_id!r} inside a transaction's "
                "block: abort the transaction and go on"
            )
            raise KafkaException(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, reason, txn_requires_abort=True))
        if membership.life.too_idle and not self._idle_reported:
            self._idle_reported = True
            reason = (
                f"the application did not call poll() for {membership.life.poll_interval_s:g} s "
                "(max.poll.interval.ms): this consumer has left its group"
            )
            self._report(ErrorCode.LOCAL_MAX_POLL_EXCEEDED, reason)
            return False
        self._lose()
        return True

    def follow(self, seen: Seen, view: ReadView) -> None:
        """Take over what a poll of the log has seen: callbacks run here, which may assign or seek.

        Nothing is taken away while a transaction's block is open: what it has read must be committed with it.
        """
        membership = self._membership
        if seen.life is not membership.life or membership.status in (Status.OUT, Status.LOST, Status.FAILED):
            return
        if self._commits.held and self._held:
            self._reading.states.leave_share()
            if seen.member is None and seen.life.joined:
                seen.life.gone = seen.life.wakes = True
            return
        if seen.refusal is not None:
            self._refuse(seen.refusal)
        elif seen.member is None:
            if seen.life.joined:
                self._lose()
        else:
            membership.move(MemberEvent.SEEN)
            self._reconcile(seen.member, view)

    def _reconcile(self, member: MemberState, view: ReadView) -> None:
        names = {topic.topic_id: name for name, topic in view.topics.items()}
        now = {
            (names[held.topic_id], held.partition)
            for held in member.assigned
            if held.topic_id in names and (names[held.topic_id], held.partition) in view.partitions
        }
        lost = self._held - now
        is_whole = len(member.assigned) >= len(member.target)
        if lost and not self._settings.is_incremental:
            lost = set(self._held)
        self._revoke(lost)
        self._release(member)
        self._membership.generation_id = member.member_epoch
        gained = now - self._held
        self._reading.states.take_over_share(is_whole=is_whole)
        if (gained or not self._is_assigned) and (gained or not member.target):
            if self._may_assign(is_whole):
                self._give(now if not self._settings.is_incremental else gained)
            elif gained:
                self._reading.states.leave_share()

    def _may_assign(self, is_whole: bool) -> bool:
        """Return True unless a call with the whole list is better made when the rest of it has come."""
        if is_whole or self._settings.is_incremental:
            self._partial_since_s = None
            return True
        now_s = self._clock.monotonic_s()
        if self._partial_since_s is None:
            self._partial_since_s = now_s
        if now_s - self._partial_since_s < _PARTIAL_S:
            return False
        self._partial_since_s = None
        return True

    def _release(self, member: MemberState) -> None:
        """Give back what the member owes, with the offsets up to which it was read; again if the first try has failed.

        Offsets without anything to give back, such as those of a partition that is assigned again, are committed too.
        """
        offsets, self._departing = self._departing, []
        owed = member.changed_entry
        if not member.revoking:
            self._releasing = None
        elif owed != self._releasing or not self._commits.is_under_way:
            self._releasing = owed
            self._commits.hand_over(offsets, self._membership.releasing(member))
            self._reading.poll_soon()
            return
        if offsets:
            self._commits.begin_commit(offsets)

    def _revoke(self, going: Iterable[TopicPartitionKey]) -> None:
        """Take partitions away after the user's `on_revoke`; their stored offsets are noted, to commit."""
        keys = sorted(going)
        if not keys:
            return
        self._reading.give_back()
        progresses = [progress for key in keys if (progress := self._assignment.get(key)) is not None]
        for key in keys:
            self._reading.discard(key)
        subscription = self._reading.subscription
        # Inside of on_revoke the user may leave: that is not a reason to call it again.
        is_first, self._is_revoking = not self._is_revoking, True
        try:
            self._call(subscription.on_revoke if subscription is not None and is_first else None, keys)
        finally:
            self._is_revoking = not is_first
            offsets = [found for progress in progresses if (found := progress.uncommitted()) is not None]
            self._departing += self._commits.automatic(offsets)
            for key in keys:
                self._reading.discard(key)
                self._assignment.remove(key)
            self._held.difference_update(keys)
            self._is_assigned = self._is_assigned and self._settings.is_incremental

    def _give(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Assign partitions, unless the user's `on_assign` has chosen."""
        given = sorted(keys)
        if not self._settings.is_incremental:
            # Called with the whole list: what was held goes first, and is read again from the committed offsets.
            self._revoke(self._held)
            if self._departing:
                self._commits.begin_commit(self._departing)
                self._departing = []
        self._is_assigned = True
        self._was_chosen = False
        self._held.update(given)
        subscription = self._reading.subscription
        self._call(subscription.on_assign if subscription is not None else None, given)
        if not self._was_chosen:
            for key in given:
                if key not in self._assignment:
                    self._assignment.add(Progress(key, OFFSET_INVALID))

    def _lose(self) -> None:
        """Lose all partitions: the group continues without this consumer, and takes no commit of it any more."""
        is_member = self._membership.status is Status.MEMBER
        self._membership.move(MemberEvent.GONE)
        try:
            if is_member:
                self._call_lost()
        finally:
            if is_member:
                self._membership.move(MemberEvent.REPORTED)
            # It may still be named: what it held must not wait for a session time-out.
            self._leave_group()
            self._membership.begin_anew()
            self._forget()
            self._reading.poll_again()

    def _call_lost(self) -> None:
        keys = sorted(self._held)
        self._reading.give_back()
        for key in keys:
            self._reading.discard(key)
        subscription = self._reading.subscription
        if keys:
            log_event("partitions_lost", member_id=self._membership.life.member_id, group_id=self._settings.group_id)
            try:
                self._call(subscription.on_lost if subscription is not None else None, keys)
            finally:
                self._take_all()

    def _refuse(self, refusal: KafkaError) -> None:
        if self._membership.status is Status.MEMBER:
            self._membership.move(MemberEvent.GONE)
            self._call_lost()
        self._membership.move(MemberEvent.REFUSED)
        self._membership.leaving()
        self._report(ErrorCode.LOCAL_FATAL, f"{refusal.name()}: {refusal.str()}", fatal=True)

    def _take_all(self) -> None:
        for progress in self._assignment:
            self._reading.discard(progress.key)
        self._assignment.clear()
        self._held.clear()

    def _call(self, callback: RebalanceCallback | None, keys: Sequence[TopicPartitionKey]) -> None:
        user = self._user()
        if callback is None or user is None:
            return
        self._is_calling = True
        try:
            with self._turns.calls_back():
                callback(user, [TopicPartition(*key) for key in keys])
        finally:
            self._is_calling = False

    def _report(self, code: ErrorCode, reason: str, *, fatal: bool = False) -> None:
        error = KafkaError(code, reason, fatal=fatal)
        self._reading.events.append(ErrorMessage(None, None, None, None, None, None, 0, 0, error))


def _wrong_call(wrong: str, right: str) -> KafkaException:
    reason = (
        f"{wrong} cannot be used in a callback of this group.protocol and partition.assignment.strategy: use {right}"
    )
    return KafkaException(KafkaError(ErrorCode.LOCAL_STATE, reason))
