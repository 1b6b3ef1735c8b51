"""The calls of `AdminClient` for consumer groups.

Each call that meets members first takes out those that are overdue, as a broker does it by itself. A process that may
not write leaves them out of what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from sparktxn.admin import groups
from sparktxn.admin.answers import REQUEST_TIMEOUT_S, AnsweringClient, answered, clock_of, list_of, names_of
from sparktxn.admin.groups import Overdue
from sparktxn.kafka.clustermetadata import GroupMetadata
from sparktxn.kafka.groups import (
    ConsumerGroupDescription,
    ConsumerGroupLag,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ListConsumerGroupsResult,
)
from sparktxn.kafka.message import IsolationLevel
from sparktxn.log.log import Log
from sparktxn.process.clock import in_time
from sparktxn.store.joining import members_name
from sparktxn.store.memberexpiry import expire_overdue
from sparktxn.store.memberwatch import seen_members
from sparktxn.values import arguments

__all__ = ["GroupCalls"]


class GroupCalls(AnsweringClient):
    """What an administrator asks of consumer groups, and does to them."""

    @answered
    def list_consumer_groups(
        self,
        *,
        states: Iterable[ConsumerGroupState] | None = None,
        types: Iterable[ConsumerGroupType] | None = None,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> Future[ListConsumerGroupsResult]:
        """Return the groups that have members or committed offsets, or those of them in one of `states` and of `types`.

        An empty list of states or of types, as confluent-kafka's, leaves no group out.
        """
        wanted_states = None if states is None else arguments.items("states", states, ConsumerGroupState)
        wanted_types = None if types is None else arguments.items("types", types, ConsumerGroupType)

        def found() -> ListConsumerGroupsResult:
            listed = [
                group
                for group in groups.list_groups(*self._without_overdue())
                if (not wanted_states or group.state in wanted_states)
                and (not wanted_types or group.type in wanted_types)
            ]
            return ListConsumerGroupsResult(listed, [])

        return self._answer(found)

    @in_time("timeout", clock_of)
    def list_groups(self, group: str | None = None, timeout: float | None = -1.0) -> list[GroupMetadata]:
        """Return all groups, or `group` alone, as confluent-kafka's oldest call of this kind does."""
        group = arguments.text_or_none("group", group)
        log, overdue = self._without_overdue(None if group is None else [group])
        return groups.group_metadata(log, self._uri, group, overdue)

    @answered
    def describe_consumer_groups(
        self,
        group_ids: Sequence[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Describe `group_ids` with their members; {group id: Future}. A group that does not exist is DEAD."""
        return self._each(
            names_of("group_ids", group_ids),
            lambda group_id: self._described(group_id, include_authorized_operations),
        )

    def _described(self, group_id: str, operations: bool) -> ConsumerGroupDescription:
        log, overdue = self._without_overdue([group_id])
        return groups.describe_group(log, self._uri, group_id, operations=operations, overdue=overdue)

    @answered
    def describe_consumer_group_lag(
        self,
        group_ids: Sequence[str],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[list[ConsumerGroupLag]]]:
        """Return how far `group_ids` are behind the end that `isolation_level` sees; {group id: Future}.

        The end is the last stable offset, or with ``READ_UNCOMMITTED`` the log end. Partitions are those that have a
        committed offset or a member.
        """
        arguments.integer("isolation_level", isolation_level, 0, 1)
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        return self._each(
            names_of("group_ids", group_ids),
            lambda group_id: groups.group_lag(*self._without_overdue([group_id]), group_id, committed=committed),
        )

    @answered
    def remove_members_from_consumer_group(
        self,
        group_id: str,
        group_instance_ids: Iterable[str] | None = None,
        *,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> Future[list[str]]:
        """Remove the members of `group_id` with `group_instance_ids` (None: all members); return their member ids.

        Consumers that still run are fenced, and may join again. The future may raise ``UNKNOWN_MEMBER_ID``: there is no
        member with an instance id; no member is removed then.
        """
        group_id = arguments.identifier("group_id", group_id)
        named = None
        if group_instance_ids is not None:
            named = arguments.identifiers("group_instance_ids", group_instance_ids)
        return self._answer(lambda: groups.remove_members(self._without_overdue([group_id])[0], group_id, named))

    @answered
    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Return committed offsets of the groups in `list_consumer_group_offsets_request`; {group id: Future}.

        With `require_stable` an offset that an open transaction holds is an error.
        """
        name, asked = "list_consumer_group_offsets_request", list_consumer_group_offsets_request
        return self._each(
            list_of(name, asked, ConsumerGroupTopicPartitions),
            lambda asked: groups.group_offsets(self._refreshed(), asked, require_stable=require_stable),
            lambda asked: asked.group_id,
        )

    @answered
    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Set offsets as `alter_consumer_group_offsets_request` says, each group's all or none; {group id: Future}.

        The futures may raise ``UNKNOWN_MEMBER_ID``: the group has members.
        """
        name, wanted = "alter_consumer_group_offsets_request", alter_consumer_group_offsets_request
        return self._for_each_group(name, wanted, groups.alter_group_offsets)

    @answered
    def delete_consumer_group_offsets(
        self,
        delete_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Forget the offsets that `delete_consumer_group_offsets_request` names; {group id: Future}.

        Those inside open transactions, too.

        The futures may raise ``GROUP_ID_NOT_FOUND``; ``GROUP_SUBSCRIBED_TO_TOPIC`` or ``NON_EMPTY_GROUP``: the group
        has members.
        """
        name, wanted = "delete_consumer_group_offsets_request", delete_consumer_group_offsets_request
        return self._for_each_group(name, wanted, groups.delete_group_offsets)

    @answered
    def delete_consumer_groups(
        self, group_ids: Sequence[str], *, request_timeout: float | None = REQUEST_TIMEOUT_S
    ) -> dict[str, Future[None]]:
        """Forget `group_ids` with all their offsets, those inside open transactions too; {group id: Future}.

        The futures may raise ``GROUP_ID_NOT_FOUND``; ``NON_EMPTY_GROUP``: the group has members.
        """
        return self._each(
            names_of("group_ids", group_ids),
            lambda group_id: groups.delete_group(self._without_overdue([group_id])[0], group_id),
        )

    def _for_each_group(
        self,
        name: str,
        wanted: Sequence[ConsumerGroupTopicPartitions],
        change: Callable[[Log, ConsumerGroupTopicPartitions], ConsumerGroupTopicPartitions],
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Change offsets of groups, of which the argument `name` is a list; {group id: Future}."""
        return self._each(
            list_of(name, wanted, ConsumerGroupTopicPartitions),
            lambda each: change(self._without_overdue([each.group_id])[0], each),
            lambda each: each.group_id,
        )

    def _without_overdue(self, group_ids: Sequence[str] | None = None) -> tuple[Log, Overdue]:
        """Return the log at its newest entry, after the overdue members of some groups, or of all, were taken out.

        Those that could not be taken out are returned, too.
        """
        log = self._refreshed()
        if group_ids is None:
            named = [group.group_id for group in log.groups()]
        else:
            named = [name for group_id in group_ids for name in (group_id, members_name(group_id))]
        if expire_overdue(log, named):
            return log, frozenset()
        seen = [member for members in seen_members(log, group_ids).values() for member in members]
        return log, frozenset((one.group_id, one.state.member_id) for one in seen if one.is_overdue)
