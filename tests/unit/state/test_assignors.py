"""Assignors: even targets, few moves, and the same answer in every process."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from sparktxn._engine.state.groups.assignors import Subscriber, range_targets, uniform_targets
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from tests.each import each

pytestmark = pytest.mark.kafka("G21")

Targets = list[tuple[TopicIdPartition, ...]]


def subscribed(
    *topics: str, target: tuple[TopicIdPartition, ...] = (), held: tuple[TopicIdPartition, ...] | None = None
) -> Subscriber:
    return Subscriber(topics, target, frozenset(target if held is None else held))


def after(members: list[Subscriber], targets: Targets) -> list[Subscriber]:
    """The members once they have reached their targets."""
    return [subscribed(*member.topics, target=target) for member, target in zip(members, targets, strict=True)]


def sizes(targets: Targets) -> list[int]:
    return [len(target) for target in targets]


class TestUniform:
    def test_partitions_of_all_topics_are_dealt_by_turns(self) -> None:
        members = [subscribed("a", "b")] * 2
        assert uniform_targets(members, {"a": (1, 3), "b": (2, 2)}) == [
            ((1, 0), (1, 2), (2, 1)),
            ((1, 1), (2, 0)),
        ]

    def test_topics_are_ordered_by_id_and_not_by_name(self) -> None:
        members = [subscribed("a", "b")] * 2
        assert uniform_targets(members, {"a": (2, 1), "b": (1, 1)}) == [((1, 0),), ((2, 0),)]

    def test_more_members_than_partitions(self) -> None:
        assert sizes(uniform_targets([subscribed("a")] * 5, {"a": (1, 3)})) == [1, 1, 1, 0, 0]

    def test_no_topic_exists(self) -> None:
        assert uniform_targets([subscribed("a"), subscribed("b"), subscribed()], {}) == [(), (), ()]

    def test_topics_that_do_not_exist_make_no_subscription_unequal(self) -> None:
        """Dealt by turns: unequal subscriptions would be filled one by one."""
        members = [subscribed("a", "x"), subscribed("a", "y")]
        assert uniform_targets(members, {"a": (1, 4)}) == [((1, 0), (1, 2)), ((1, 1), (1, 3))]

    def test_members_that_have_most_keep_one_more(self) -> None:
        members = [
            subscribed("a", target=((1, 0),)),
            subscribed("a", target=((1, 1), (1, 2), (1, 3), (1, 4))),
            subscribed("a"),
        ]
        targets = uniform_targets(members, {"a": (1, 5)})
        assert sizes(targets) == [2, 2, 1]
        assert set(targets[0]) > {(1, 0)}
        assert targets[1] == ((1, 1), (1, 2))

    def test_what_a_member_does_not_hold_yet_leaves_first(self) -> None:
        waiting = subscribed("a", target=((1, 0), (1, 1), (1, 2), (1, 3)), held=((1, 2), (1, 3)))
        assert uniform_targets([waiting, subscribed("a")], {"a": (1, 4)}) == [((1, 2), (1, 3)), ((1, 0), (1, 1))]

    def test_what_was_not_given_back_yet_stays(self) -> None:
        """The member that was to have it has gone."""
        owing = subscribed("a", target=((1, 0),), held=((1, 0), (1, 2)))
        other = subscribed("a", target=((1, 1),))
        assert uniform_targets([other, owing], {"a": (1, 4)}) == [((1, 1), (1, 3)), ((1, 0), (1, 2))]

    def test_no_more_is_taken_back_than_a_member_is_to_have(self) -> None:
        owing = subscribed("a", target=((1, 0),), held=((1, 0), (1, 1), (1, 2)))
        assert uniform_targets([owing, subscribed("a")], {"a": (1, 4)}) == [((1, 0), (1, 1)), ((1, 2), (1, 3))]

    @each(range(40))
    def test_targets_are_even_and_no_partition_moves_without_need(self, seed: int) -> None:
        print(f"seed {seed}")
        rng = Random(seed)
        topics = {name: (number, rng.randint(1, 7)) for number, name in enumerate("abc"[: rng.randint(1, 3)], 1)}
        members = [subscribed(*sorted(topics)) for _ in range(rng.randint(1, 6))]
        for _ in range(8):
            targets = uniform_targets(members, topics)
            given = [place for target in targets for place in target]
            assert sorted(given) == sorted((id_, n) for id_, count in topics.values() for n in range(count))
            assert max(sizes(targets)) - min(sizes(targets)) <= 1
            assert kept(members, targets) == most_that_can_stay(members, len(given))
            members = after(members, targets)
            assert uniform_targets(members, topics) == targets, "nothing changes when nothing has changed"
            if rng.random() < 0.5 or len(members) == 1:
                members.insert(rng.randint(0, len(members)), subscribed(*sorted(topics)))
            else:
                del members[rng.randrange(len(members))]

    @each(range(40))
    def test_with_unequal_subscriptions_no_single_move_makes_targets_more_even(self, seed: int) -> None:
        print(f"seed {seed}")
        rng = Random(seed)
        topics = {name: (number, rng.randint(1, 9)) for number, name in enumerate("abcd", 1)}
        members = [some_topics(rng) for _ in range(rng.randint(2, 6))]
        for _ in range(8):
            targets = uniform_targets(members, topics)
            check_spread(members, targets, topics)
            members = after(members, targets)
            assert uniform_targets(members, topics) == targets, "nothing changes when nothing has changed"
            if rng.random() < 0.5 or len(members) == 2:
                members.insert(rng.randint(0, len(members)), some_topics(rng))
            else:
                del members[rng.randrange(len(members))]

    def test_unequal_subscriptions_step_by_step(self) -> None:
        topics = {"a": (1, 3), "b": (2, 2), "c": (3, 2)}
        first = [subscribed("a", "b"), subscribed("b", "c")]
        targets = uniform_targets(first, topics)
        assert targets == [((1, 0), (1, 1), (1, 2), (2, 1)), ((2, 0), (3, 0), (3, 1))]
        third = [*after(first, targets), subscribed("a", "c")]
        assert uniform_targets(third, topics) == [
            ((1, 0), (2, 1)),
            ((2, 0), (3, 0), (3, 1)),
            ((1, 1), (1, 2)),
        ]

    def test_with_unequal_subscriptions_a_partition_goes_back_to_who_still_holds_it(self) -> None:
        topics = {"a": (1, 2), "b": (2, 1)}
        members = [subscribed("a", "b"), subscribed("a", held=((1, 1),))]
        assert uniform_targets(members, topics) == [((2, 0),), ((1, 0), (1, 1))]

    def test_with_unequal_subscriptions_what_is_not_held_is_given_first(self) -> None:
        topics = {"a": (1, 4), "b": (2, 1)}
        all_of_a = ((1, 0), (1, 1), (1, 2), (1, 3))
        members = [subscribed("a", target=all_of_a, held=((1, 3),)), subscribed("a", "b")]
        assert uniform_targets(members, topics) == [((1, 0), (1, 1), (1, 3)), ((1, 2), (2, 0))]


def some_topics(rng: Random) -> Subscriber:
    return subscribed(*sorted(rng.sample("abcd", rng.randint(1, 3))))


def kept(members: list[Subscriber], targets: Targets) -> int:
    return sum(len(set(member.target) & set(target)) for member, target in zip(members, targets, strict=True))


def most_that_can_stay(members: list[Subscriber], count: int) -> int:
    """By trying which members get one more."""
    low, longer = divmod(count, len(members))
    return max(
        sum(min(len(member.target), low + (at in more)) for at, member in enumerate(members))
        for more in combinations(range(len(members)), longer)
    )


def check_spread(members: list[Subscriber], targets: Targets, topics: dict[str, tuple[int, int]]) -> None:
    ids = {topic_id: name for name, (topic_id, _) in topics.items()}
    wanted = {name for member in members for name in member.topics}
    given = [place for target in targets for place in target]
    assert sorted(given) == sorted(
        (id_, n) for name, (id_, count) in topics.items() if name in wanted for n in range(count)
    )
    for member, target in zip(members, targets, strict=True):
        assert {ids[topic_id] for topic_id, _ in target} <= set(member.topics)
        for topic_id, _ in target:
            others = [len(targets[at]) for at, other in enumerate(members) if ids[topic_id] in other.topics]
            assert len(target) <= min(others) + 1


class TestRange:
    def test_each_topic_is_divided_by_itself(self) -> None:
        members = [subscribed("a", "b"), subscribed("a", "b"), subscribed("a")]
        assert range_targets(members, {"a": (1, 5), "b": (2, 3)}) == [
            ((1, 0), (1, 1), (2, 0), (2, 1)),
            ((1, 2), (1, 3), (2, 2)),
            ((1, 4),),
        ]

    def test_more_members_than_partitions(self) -> None:
        assert range_targets([subscribed("a")] * 3, {"a": (1, 2)}) == [((1, 0),), ((1, 1),), ()]

    def test_no_topic_exists(self) -> None:
        assert range_targets([subscribed("a"), subscribed("b")], {}) == [(), ()]

    @each(range(1, 9))
    def test_topics_of_one_size_are_divided_alike(self, members: int) -> None:
        topics = {"a": (1, 7), "b": (2, 7), "c": (3, 7)}
        for target in range_targets([subscribed("a", "b", "c")] * members, topics):
            numbers = [[number for topic_id, number in target if topic_id == id_] for id_ in (1, 2, 3)]
            assert numbers[0] == numbers[1] == numbers[2]
            assert numbers[0] == list(range(numbers[0][0], numbers[0][-1] + 1)) if numbers[0] else True


@pytest.mark.parametrize("assign", [uniform_targets, range_targets])
def test_a_thousand_members_share_ten_thousand_partitions(assign) -> None:
    """As Kafka's testValidityAndBalanceForLargeSampleSet; `bench` measures how long it takes."""
    targets = assign([subscribed("a")] * 1_000, {"a": (1, 10_000)})
    assert sizes(targets) == [10] * 1_000
    assert len({place for target in targets for place in target}) == 10_000
