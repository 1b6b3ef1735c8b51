"""Consumer groups of docs/PROTOCOL.md, by its words alone: the members, and which partitions each holds."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
Place = tuple[int, int]

INTERNAL_TOPICS = {"__transaction_state": (-2, 1), "__consumer_offsets": (-3, 1)} | {
    name: (-4 - place, 1)
    for place, name in enumerate(
        ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC")
    )
}


def place_of(held: list[int]) -> Place:
    return held[0], held[1]


def held_by(member: Record) -> set[Place]:
    return {place_of(held) for held in (*member["assigned"], *member["revoking"])}


def member_order(member: Record) -> tuple[int, str]:
    return (0, member["instance_id"]) if member["instance_id"] else (1, member["member_id"])


def assignor_of(members: list[Record]) -> str:
    counting = [name for name in ("uniform", "range") if all(name in member["assignors"] for member in members)]
    votes = {"uniform": 0, "range": 0}
    for member in members:
        votes[next(name for name in member["assignors"] if name in (counting or votes))] += 1
    return "range" if votes["range"] > votes["uniform"] else "uniform"


def by_range(members: list[Record], topics: dict[str, tuple[int, int]]) -> list[set[Place]]:
    targets: list[set[Place]] = [set() for _ in members]
    for name, (topic_id, count) in topics.items():
        subscribers = [at for at, member in enumerate(members) if name in member["topics"]]
        numbers = list(range(count))
        for rank, at in enumerate(subscribers):
            length = count // len(subscribers) + (1 if rank < count % len(subscribers) else 0)
            targets[at] |= {(topic_id, number) for number in numbers[:length]}
            numbers = numbers[length:]
    return targets


def by_quota(members: list[Record], places: list[Place]) -> list[set[Place]]:
    kept = [[place for place in places if list(place) in member["target"]] for member in members]
    longest = sorted(range(len(members)), key=lambda at: (-len(kept[at]), at))[: len(places) % len(members)]
    quotas = [len(places) // len(members) + (at in longest) for at in range(len(members))]
    targets = []
    for member, quota, before in zip(members, quotas, kept, strict=True):
        held = held_by(member)
        ordered = [place for place in before if place in held] + [place for place in before if place not in held]
        targets.append(set(ordered[:quota]))
    free = [place for place in places if not any(place in target for target in targets)]
    for member, quota, target in zip(members, quotas, targets, strict=True):
        for place in [place for place in free if place in held_by(member)][: quota - len(target)]:
            target.add(place)
            free.remove(place)
    while free:
        for at in [at for at, target in enumerate(targets) if len(target) < quotas[at]]:
            targets[at].add(free.pop(0))
    return targets


def by_size(members: list[Record], topics: dict[str, tuple[int, int]]) -> list[set[Place]]:
    subscribers = {
        topic_id: [at for at, member in enumerate(members) if name in member["topics"]]
        for name, (topic_id, _) in topics.items()
    }
    ordered = sorted(topics.values(), key=lambda topic: (len(subscribers[topic[0]]), topic[0]))
    places = [(topic_id, number) for topic_id, count in ordered for number in range(count)]
    targets: list[set[Place]] = [set() for _ in members]
    for place in places:
        for at in subscribers[place[0]]:
            if list(place) in members[at]["target"]:
                targets[at].add(place)
    for place in [place for place in places if not any(place in target for target in targets)]:
        fewest = min(subscribers[place[0]], key=lambda at: len(targets[at]))
        for at in subscribers[place[0]]:
            if place in held_by(members[at]) and len(targets[at]) <= len(targets[fewest]):
                fewest = at
        targets[fewest].add(place)
    before = None
    while before != targets:
        before = [set(target) for target in targets]
        for topic_id, _ in ordered:
            while even_out(members, targets, topic_id, subscribers[topic_id]):
                pass
    return targets


def even_out(members: list[Record], targets: list[set[Place]], topic_id: int, subscribers: list[int]) -> bool:
    giving = [at for at in subscribers if any(place[0] == topic_id for place in targets[at])]
    if not giving:
        return False
    giver = max(giving, key=lambda at: (len(targets[at]), at))
    taker = min(subscribers, key=lambda at: (len(targets[at]), at))
    if len(targets[giver]) < len(targets[taker]) + 2:
        return False
    ours = [place for place in targets[giver] if place[0] == topic_id]
    moved = max([place for place in ours if place not in held_by(members[giver])] or ours)
    targets[giver].remove(moved)
    targets[taker].add(moved)
    return True


class Groups:
    """The part of a replay that knows members; the records, and how to read and put one, are the replay's."""

    entry: int
    timestamp_ms: int
    records: dict[tuple[Any, ...], Record]

    def get(self, *key: Any) -> Any:
        raise NotImplementedError

    def put(self, record: Record) -> None:
        raise NotImplementedError

    def need(self, condition: object, reason: str) -> None:
        raise NotImplementedError

    def remember(self, command: Record, **answer: Any) -> None:
        raise NotImplementedError

    # commands

    def join_group(self, command: Record) -> None:
        group_id, member_id, instance_id = command["group_id"], command["member_id"], command["instance_id"]
        given = {name: command[name] for name in command if name not in ("type", "request_id")}
        members = self._members(group_id)
        known = members.get(member_id)
        self.need(group_id and member_id and command["assignors"], "a member without a name or an assignor joins")
        self.need(set(command["assignors"]) <= {"uniform", "range"}, "an assignor is not known")
        self.need(command["topics"] == sorted(set(command["topics"])), "topics are not in order")
        self.need(known is None or known["instance_id"] == instance_id, "a member changes its instance id")
        others = [
            member
            for member in members.values()
            if known is None and instance_id and member["instance_id"] == instance_id
        ]
        joined = {"type": "member", **given, "member_epoch": 0, "left": False, "target": [], "assigned": []}
        joined |= {"revoking": [], "last_entry": self.entry, "changed_entry": 0}
        before = known
        if known is not None:
            joined |= {name: known[name] for name in ("member_epoch", "target", "assigned")}
        for before in others:
            self.need(before["left"] or command["classic"], "an instance id is taken from a member that has not left")
            joined["target"] = before["target"]
            del members[before["member_id"]]
        self.need(before is not None or len(members) < 10_000, "a group has too many members")
        members[member_id] = joined
        same = before is not None and all(before[name] == joined[name] for name in ("topics", "assignors"))
        self._change(group_id, members, targets=not same, epoch=not same or bool(others))
        self.remember(command)

    def update_member(self, command: Record) -> None:
        members = self._members(command["group_id"])
        member = self._known(members, command)
        self.need(command["topics"] == sorted(set(command["topics"])), "topics are not in order")
        members[member["member_id"]] = member | {"topics": command["topics"], "last_entry": self.entry}
        differs = member["topics"] != command["topics"]
        self._change(command["group_id"], members, targets=differs, epoch=differs)
        self.remember(command)

    def release_partitions(self, command: Record) -> None:
        members = self._members(command["group_id"])
        member = self._known(members, command)
        kept = [
            held
            for held in member["revoking"]
            if command["changed_entry"] != member["changed_entry"] or list(place_of(held)) not in command["partitions"]
        ]
        members[member["member_id"]] = member | {"revoking": kept, "last_entry": self.entry}
        self._change(command["group_id"], members)
        self.remember(command)

    def leave_group(self, command: Record) -> None:
        members = self._members(command["group_id"])
        self.need(command["member_id"] in members, "a consumer leaves that is not a member")
        member = members[command["member_id"]]
        if command["keeps_place"] and member["instance_id"]:
            members[member["member_id"]] = member | {"left": True, "revoking": [], "last_entry": self.entry}
            self._change(command["group_id"], members)
        else:
            del members[member["member_id"]]
            self._change(command["group_id"], members, targets=True, epoch=True)
        self.remember(command)

    def expire_member(self, command: Record) -> None:
        members = self._members(command["group_id"])
        member = members.get(command["member_id"], {})
        reason = command["reason"]
        since = {"session": "last_entry", "rebalance": "changed_entry"}[reason]
        self.need(member.get("member_epoch", -1) >= command["member_epoch"], "a member expires that is behind")
        self.need(member[since] == command["last_entry"], "a member expires that has given a sign of life")
        self.need(reason == "session" or member["revoking"], "a member expires that owes nothing")
        self.need(command["after_ms"] >= member[f"{reason}_timeout_ms"], "a member expires early")
        del members[command["member_id"]]
        self._change(command["group_id"], members, targets=True, epoch=True)

    def topic_changes(self, name: str, deleted: int | None = None) -> None:
        for group_id in (self.get("subscribers", name) or {"group_ids": []})["group_ids"]:
            self._change(group_id, self._members(group_id), targets=True, epoch=True, deleted=deleted)

    def check_commit(self, command: Record) -> None:
        """A commit is of a member that holds all its partitions, or of no group with members."""
        group_id, member_id = command["group_id"], command["member_id"]
        if not member_id:
            self.need(self.get("group", group_id) is None, "a commit without a member is accepted by a group")
            return
        member = self.get("member", group_id, member_id)
        self.need(member is not None, "a consumer commits that is not a member")
        self.need(command["instance_id"] in ("", member["instance_id"]), "a member commits under another instance id")
        epoch = command["generation_id"]
        self.need(epoch <= member["member_epoch"], "a member commits in an epoch of the future")
        since = {place_of(held): held[2] for held in (*member["assigned"], *member["revoking"])}
        for topic_id, number, *_ in command["offsets"]:
            holds = since.get((topic_id, number), epoch + 1) <= epoch
            self.need(holds, "a member commits for a partition that it does not hold")
        self.put(member | {"last_entry": self.entry})

    # groups

    def _members(self, group_id: str) -> dict[str, Record]:
        group = self.get("group", group_id)
        return {} if group is None else {id_: self.get("member", group_id, id_) for id_ in group["members"]}

    def _known(self, members: dict[str, Record], command: Record) -> Record:
        self.need(command["member_id"] in members, "a command names a consumer that is not a member")
        member = members[command["member_id"]]
        self.need(command["member_epoch"] <= member["member_epoch"], "a command names an epoch of the future")
        return member

    def _change(
        self,
        group_id: str,
        members: dict[str, Record],
        *,
        targets: bool = False,
        epoch: bool = False,
        deleted: int | None = None,
    ) -> None:
        before = self._members(group_id)
        ordered = sorted(members.values(), key=member_order)
        if targets and ordered:
            ordered = self._with_targets(ordered)
        group = self.get("group", group_id)
        number = self.entry if epoch else group["epoch"]
        after = self._reconciled(ordered, number, deleted)
        for member_id in before:
            del self.records["member", group_id, member_id]
        for member in after:
            revoking = before.get(member["member_id"], {"revoking": []})["revoking"]
            if member["revoking"] != revoking:
                member["changed_entry"] = self.entry if member["revoking"] else 0
            self.put(member)
        if after:
            assignor = assignor_of(ordered) if epoch else group["assignor"]
            record = {"type": "group", "group_id": group_id, "epoch": number, "assignor": assignor}
            self.put(record | {"members": sorted(members)})
            self.records.pop(("empty_group", group_id), None)
        else:
            self.records.pop(("group", group_id), None)
            self.put(
                {"type": "empty_group", "group_id": group_id, "entry": self.entry, "timestamp_ms": self.timestamp_ms}
            )
        self._subscribe(group_id, list(before.values()), after)

    def _with_targets(self, members: list[Record]) -> list[Record]:
        topics = {}
        for name in {name for member in members for name in member["topics"]}:
            topic = self.get("topic", name)
            if topic is not None:
                topics[name] = (topic["topic_id"], topic["partition_count"])
            elif name in INTERNAL_TOPICS:
                topics[name] = INTERNAL_TOPICS[name]
        if assignor_of(members) == "range":
            found = by_range(members, topics)
        elif len({frozenset(member["topics"]) & frozenset(topics) for member in members}) == 1:
            places = sorted((topic_id, number) for topic_id, count in topics.values() for number in range(count))
            found = by_quota(members, places)
        else:
            found = by_size(members, topics)
        return [
            member | {"target": [list(place) for place in sorted(target)]}
            for member, target in zip(members, found, strict=True)
        ]

    def _reconciled(self, members: list[Record], epoch: int, deleted: int | None) -> list[Record]:
        after = []
        for member in members:
            held = sorted([*member["assigned"], *member["revoking"]])
            wanted = [one for one in held if one[:2] in member["target"]]
            owed = [one for one in held if one[:2] not in member["target"] and one[0] != deleted]
            owed = [one for one in owed if one[2] != self.entry]
            changed = member | {"assigned": wanted, "revoking": [] if member["left"] else owed}
            after.append(changed | ({} if changed["revoking"] else {"member_epoch": epoch}))
        taken = set().union(*map(held_by, after)) if after else set()
        for member in after:
            if not member["revoking"]:
                new = [[*place, epoch] for place in member["target"] if tuple(place) not in taken]
                member["assigned"] = sorted([*member["assigned"], *new])
        return after

    def _subscribe(self, group_id: str, before: list[Record], after: list[Record]) -> None:
        for name in {name for member in (*before, *after) for name in member["topics"]}:
            subscribed = any(name in member["topics"] for member in after)
            known = self.get("subscribers", name)
            others = [other for other in known["group_ids"] if other != group_id] if known is not None else []
            group_ids = sorted([*others, group_id]) if subscribed else others
            if group_ids:
                self.put({"type": "subscribers", "name": name, "group_ids": group_ids})
            else:
                self.records.pop(("subscribers", name), None)
