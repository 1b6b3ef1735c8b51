"""Changes by the console: each in its steps, once, and only as it was previewed; and requests that change nothing."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from sparktxn import TopicPartition
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._programs.console.changes import jobs
from sparktxn._programs.console.changes.previews import Preview, PreviewOutcome, Previews
from sparktxn._programs.console.requestparameters import NotFound
from sparktxn._programs.console.routes import application
from sparktxn.admin import AdminClient, ConsumerGroupTopicPartitions, NewPartitions
from sparktxn.maintenance import SweepReport
from tests.console.asking import HOST, HTML, JSON, SAME_ORIGIN, Answer, Console
from tests.console.stores import HOSTILE
from tests.console.test_pages import Outline, check
from tests.world import World

JOBS = ("sweep", "retention", "compact", "rewrite", "tables", "vacuum")
FORMS = (
    "/change/create-topic",
    "/change/alter-topic?topic=six",
    "/change/reset-offsets?group=readers",
    "/change/abort?id=open",
    "/change/fence?id=open",
    "/change/job",
)
ID = quote(HOSTILE, safe="")


class Changing(World):
    """A store with a transaction that is open, a group without members, and an administrator."""

    def __init__(self) -> None:
        super().__init__({"t": 1, "six": 6})
        self.produce("a", "b", "c")
        self.opened = self.begin("open", "six")
        self.admin = AdminClient({"bootstrap.servers": self.uri})
        self.clients.append(self.admin)
        self.give_offset(2)
        self.console = Console(self.store, allow_changes=True)

    def begin(self, transactional_id: str, topic: str) -> Any:
        producer = self.transactional(transactional_id)
        producer.begin_transaction()
        producer.produce(topic, "open", partition=0)
        producer.flush()
        return producer

    def give_offset(self, offset: int) -> None:
        wanted = ConsumerGroupTopicPartitions("readers", [TopicPartition("t", 0, offset)])
        self.admin.alter_consumer_group_offsets([wanted])["readers"].result()

    def settings(self, topic: str) -> dict[str, str]:
        return dict(self.store.view([topic]).topics[topic].settings)

    def member(self) -> Any:
        consumer = self.consumer("t", group_id="readers", group_protocol="consumer")
        for _ in range(200):
            if consumer.assignment():
                return consumer
            consumer.poll(0.05)
        raise AssertionError("no assignment")


@pytest.fixture
def world() -> Iterator[Changing]:
    world = Changing()
    yield world
    world.close()


@pytest.fixture
def console(world: Changing) -> Console:
    return world.console


def hidden(html: str) -> dict[str, str]:
    found = Outline(html).all("input")
    return {one["name"] or "": one["value"] or "" for one in found if one.get("type") == "hidden"}


# Three steps


CHANGES: list[tuple[str, dict[str, Any], str, Callable[[Changing], Any], Any]] = [
    (
        "/change/create-topic",
        {
            "topic": "new",
            "partitions": "3",
            "settings": "segment.rows=7\r\n\r\n",
            "columns": "id int64 not null\nx double",
        },
        "created",
        lambda world: [
            (one.name, one.partition_count, one.settings) for one in world.store.topics() if one.name == "new"
        ],
        [("new", 3, {"segment.rows": "7"})],
    ),
    (
        "/change/alter-topic?topic=six",
        {"partitions": "8", "settings": "segment.rows=9", "unset": "compression.type"},
        "altered",
        lambda world: (world.store.view(["six"]).topics["six"].partition_count, world.settings("six")),
        (8, {"segment.rows": "9"}),
    ),
    (
        "/change/reset-offsets?group=readers",
        {"to": "earliest", "topics": "t"},
        "applied",
        lambda world: world.committed("readers"),
        0,
    ),
    (
        "/change/reset-offsets?group=readers",
        {"to": "shift", "shift": "-1"},
        "applied",
        lambda world: world.committed("readers"),
        1,
    ),
    (
        "/change/abort?id=open",
        {},
        "aborted",
        lambda world: [str(one.state) for one in world.admin.list_transactions().result()],
        ["CompleteAbort"],
    ),
    (
        "/change/fence?id=open",
        {},
        "fenced",
        lambda world: [str(one.state) for one in world.admin.list_transactions().result()],
        ["Empty"],
    ),
]


@pytest.mark.parametrize(("form", "given", "done", "state", "then"), CHANGES)
def test_a_change_is_a_form_a_preview_and_a_result(
    world: Changing, console: Console, form: str, given: dict[str, str], done: str, state: Any, then: Any
) -> None:
    before, entry = state(world), world.entry()
    assert before != then
    html = console.page(form)
    check(html)
    preview = console.submit(form, **hidden(html), **given)
    assert preview.code == 200, preview.text
    check(preview.text)
    assert "Nothing is changed yet" in preview.text
    assert (state(world), world.entry()) == (before, entry)
    applied = console.submit("/change/apply", **hidden(preview.text))
    assert (applied.code, applied.data) == (303, b"")
    where = applied.headers["location"]
    result = console.page(where)
    check(result)
    assert "It was done." in result
    assert state(world) == then
    page = console.data(where)
    assert (page["applied"], page["error"]) == (True, None)
    assert all(row[done] is True for row in page["rows"])


@pytest.mark.parametrize(("form", "given", "done", "state", "then"), CHANGES)
def test_a_program_does_the_same_with_json(
    world: Changing, console: Console, form: str, given: dict[str, str], done: str, state: Any, then: Any
) -> None:
    preview = console.preview(form, **given)
    assert not preview["applied"]
    assert not any(row.get(done) for row in preview["rows"])
    applied = console.apply(preview)
    assert (applied.code, applied.json["applied"]) == (200, True)
    assert state(world) == then


def test_members_of_json_may_be_numbers_lists_and_objects(world: Changing, console: Console) -> None:
    settings, columns = {"segment.rows": 7, "compression.type": "lz4"}, ["id int64", "x double"]
    console.apply(console.preview("/change/create-topic", topic="n", partitions=2, settings=settings, columns=columns))
    assert world.settings("n") == {"segment.rows": "7", "compression.type": "lz4"}
    assert [name for name, _, _ in world.store.view(["n"]).topics["n"].schema or ()] == ["id", "x"]


@pytest.mark.parametrize("job", JOBS)
def test_each_job_of_maintenance_can_be_run(world: Changing, console: Console, job: str) -> None:
    preview = console.preview("/change/job", job=job)
    would = {one["job"]: one["would"] for one in console.data("/maintenance?run=1")["jobs"]}
    if job in would:
        assert preview["rows"] == [would[job]]
    applied = console.apply(preview)
    assert applied.code == 200, applied.text
    assert [row["dry_run"] for row in applied.json["rows"]] == [False]
    check(console.page(f"/changed/{preview['plan']}"))


def test_a_job_does_what_it_has_shown(world: Changing, console: Console) -> None:
    world.store.create_topic("old", 1, settings={"retention.bytes": "0"})
    world.produce("1", "2", topic="old")
    preview = console.preview("/change/job", job="retention")
    shown = [(one["topic"], one["new_log_start_offset"]) for one in preview["rows"][0]["shortened"]]
    assert shown == [("old", 2)]
    assert console.apply(preview).code == 200
    assert world.store.view(["old"]).partitions["old", 0].log_start_offset == 2


def test_a_vacuum_deletes_what_its_preview_names(world: Changing, console: Console) -> None:
    for _ in range(3):
        world.produce("more")
        world.store.log.checkpoint()
    now = ["vacuum.retention.ms=0", "vacuum.segment.age.ms=0", "vacuum.temporary.age.ms=0"]
    preview = console.preview("/change/job", job="vacuum", settings=now)
    (row,) = preview["rows"]
    assert row["entries"]
    assert row["names_left_out"] == 0
    html = console.submit("/change/job", form_token=console.form_token(), job="vacuum", settings="\n".join(now)).text
    assert all(name in html for name in row["names"])
    (done,) = console.apply(preview).json["rows"]
    counts = ("entries", "checkpoints", "segments", "size_bytes")
    assert [done[name] for name in counts] == [row[name] for name in counts]
    assert not [name for name in row["names"] if world.store.log.objects.get(name) is not None]


def test_each_route_of_a_change_is_asked_for(world: Changing) -> None:
    paths = {getattr(route, "path", "") for route in application(world.console.source, None).routes}
    asked = {form.partition("?")[0] for form in FORMS}
    assert {path for path in paths if path.startswith("/change")} == {*asked, "/change/apply", "/changed/{plan}"}


def test_pages_lead_to_the_forms(console: Console) -> None:
    for page, form in (
        ("/topics", "/change/create-topic"),
        ("/topics/six", "/change/alter-topic?topic=six"),
        ("/group?id=readers", "/change/reset-offsets?group=readers"),
        ("/transaction?id=open", "/change/abort?id=open"),
        ("/transaction?id=open", "/change/fence?id=open"),
        ("/maintenance?run=1", "/change/job?job=sweep"),
    ):
        html = console.page(page)
        check(html)
        assert form in [one["href"] for one in Outline(html).all("a")]
        assert "changes allowed" in html
        check(console.page(form))


# Requests that change nothing


def test_without_the_flag_there_is_nothing_to_post_to(world: Changing) -> None:
    console, entry = Console(world.store), world.entry()
    for form in (*FORMS, "/change/apply", "/changed/x"):
        answer = console.get(form, accept="application/json")
        assert answer.code == 403
        assert "--allow-changes" in answer.json["error"]["message"]
        assert console.submit(form, form_token="x", plan="x").code == 405
    for page in ("/topics", "/topics/six", "/group?id=readers", "/transaction?id=open", "/maintenance?run=1"):
        html = console.page(page)
        assert "/change" not in html
        assert "reads only" in html
    assert world.entry() == entry


FORGED: list[dict[str, str]] = [
    {},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": f"https://evil.example/{HOST}"},
    {"origin": f"http://{HOST}", "sec-fetch-site": "cross-site"},
    {"origin": f"http://{HOST}", "sec-fetch-site": "same-site"},
]


@pytest.mark.parametrize("forged", FORGED)
def test_a_form_of_another_site_changes_nothing(world: Changing, console: Console, forged: dict[str, str]) -> None:
    preview, entry = console.preview("/change/abort?id=open"), world.entry()
    body = f"form_token={preview['form_token']}&plan={preview['plan']}".encode()
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for target in (*FORMS, "/change/apply"):
        assert console.ask("POST", target, {**kind, **forged}, body).code == 403
    other = {**HTML, "host": "evil.example", "origin": "http://evil.example"}
    assert console.ask("POST", "/change/apply", other, body).code == 421
    assert world.entry() == entry
    assert console.get(f"/changed/{preview['plan']}").code == 404


@pytest.mark.parametrize("token", [None, "", "x", "\udc80", "\u202e"])
def test_a_request_without_the_token_of_the_forms_changes_nothing(
    world: Changing, console: Console, token: str | None
) -> None:
    preview, entry = console.preview("/change/abort?id=open"), world.entry()
    members = {"plan": preview["plan"]} if token is None else {"plan": preview["plan"], "form_token": token}
    for target in (*FORMS, "/change/apply"):
        answer = console.ask("POST", target, JSON, json.dumps(members).encode())
        # Half of a surrogate pair is in no JSON.
        assert answer.code in ((403, 400) if token == "\udc80" else (403,))
    assert Console(world.store, allow_changes=True).apply(preview).code == 403
    assert world.entry() == entry


def test_with_a_token_of_the_console_only_its_bearer_changes_anything(world: Changing) -> None:
    token = "a-token-of-enough-characters"
    console, entry = Console(world.store, token=token, allow_changes=True), world.entry()
    for target in (*FORMS, "/change/apply"):
        assert console.submit(target, form_token="x").code == 401
    bearer = {"authorization": f"Bearer {token}"}
    form = console.ask("GET", "/change/abort?id=open", {**JSON, **bearer}).json
    body = json.dumps({"form_token": form["form_token"]}).encode()
    assert (
        console.ask("POST", "/change/abort?id=open", {**bearer, "content-type": "application/json"}, body).code == 403
    )
    preview = console.ask("POST", "/change/abort?id=open", {**JSON, **bearer}, body).json
    assert world.entry() == entry
    body = json.dumps({"form_token": form["form_token"], "plan": preview["plan"]}).encode()
    assert console.ask("POST", "/change/apply", {**JSON, **bearer}, body).code == 200
    assert world.entry() > entry


@pytest.mark.parametrize(
    ("form", "given", "code", "words"),
    [
        ("/change/create-topic", {}, 400, "the topic has no name"),
        ("/change/create-topic", {"topic": "six"}, 400, "topic 'six' already exists"),
        ("/change/create-topic", {"topic": "a/b"}, 400, "a/b"),
        ("/change/create-topic", {"topic": "n", "partitions": "0"}, 400, "expected a whole number from 1"),
        ("/change/create-topic", {"topic": "n", "partitions": "ten"}, 400, "expected a whole number from 1"),
        ("/change/create-topic", {"topic": "n", "settings": "segment.rows"}, 400, "expected name=value"),
        ("/change/create-topic", {"topic": "n", "settings": "a=1\na=2"}, 400, "'a' twice"),
        ("/change/create-topic", {"topic": "n", "settings": "segment.rowz=7"}, 400, "segment.rowz"),
        ("/change/create-topic", {"topic": "n", "columns": "id"}, 400, "expected 'NAME TYPE'"),
        ("/change/create-topic", {"topic": "n", "columns": "id int65"}, 400, "int65"),
        ("/change/create-topic", {"topic": "n", "settings": "a=" + "x" * 40_000}, 400, "expected at most 32768"),
        ("/change/alter-topic?topic=six", {}, 400, "nothing to alter is given"),
        ("/change/alter-topic?topic=six", {"partitions": "6"}, 400, "expected a count above that"),
        ("/change/alter-topic?topic=six", {"settings": "segment.rows=7", "partitions": "3"}, 400, "above that"),
        ("/change/alter-topic?topic=absent", {"partitions": "6"}, 404, "topic 'absent' does not exist"),
        ("/change/reset-offsets?group=readers", {"to": "noon"}, 400, "expected one of earliest"),
        ("/change/reset-offsets?group=readers", {"to": "offset"}, 400, "expected offset with it"),
        ("/change/reset-offsets?group=readers", {"to": "latest", "offset": "1"}, 400, "expected no offset with it"),
        (
            "/change/reset-offsets?group=readers",
            {"to": "offset", "offset": "-1"},
            400,
            "expected a whole number from 0",
        ),
        ("/change/reset-offsets?group=readers", {"to": "time", "time": "noon"}, 400, "time is 'noon'"),
        ("/change/reset-offsets?group=readers", {"topics": "t:9"}, 400, "partitions 0 to 0, not 9"),
        ("/change/reset-offsets?group=readers", {"topics": "t:x"}, 400, "expected TOPIC or TOPIC:0,1"),
        ("/change/reset-offsets?group=readers", {"topics": "absent"}, 404, "topic 'absent' does not exist"),
        ("/change/reset-offsets?group=new", {}, 404, "group 'new' has no offsets"),
        ("/change/abort?id=absent", {}, 404, "'absent' is not known"),
        ("/change/fence?id=absent", {}, 404, "'absent' is not known"),
        ("/change/fence", {}, 400, "the transactional id is empty"),
        ("/change/job", {"job": "all"}, 400, "expected one of sweep"),
        ("/change/job", {"job": "tables", "settings": "a=1"}, 400, "tables takes none"),
        ("/change/job", {"job": "vacuum", "settings": "vacuum.retention.ms=soon"}, 400, "vacuum.retention.ms"),
    ],
)
def test_wrong_input_is_an_error_on_the_form_before_anything_is_written(
    world: Changing, console: Console, form: str, given: dict[str, str], code: int, words: str
) -> None:
    token, entry = console.form_token(), world.entry()
    html, data = console.submit(form, form_token=token, **given), console.send(form, form_token=token, **given)
    assert (html.code, data.code) == (code, code)
    check(html.text)
    assert 'role="alert"' in html.text
    assert words in data.json["error"]["message"]
    if code == 400 and "fields" in data.json:
        entered = {one["name"]: one["value"] for one in data.json["fields"]}
        assert all(entered[name] in (value, value[:32_768]) for name, value in given.items() if name in entered)
    assert world.entry() == entry


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain", b"form_token=x"),
        ("", b"form_token=x"),
        ("application/json", b"{"),
        ("application/json", b"[1]"),
        ("application/json", b'{"a": "\xff"}'),
        ("application/x-www-form-urlencoded", b"topic=%ff"),
        ("application/x-www-form-urlencoded", b"topic=\xff"),
        ("application/x-www-form-urlencoded", b"&".join(b"a%d=1" % number for number in range(200))),
        ("application/x-www-form-urlencoded", b"topic=" + b"x" * 200_000),
        ("application/json", b'{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    ],
)
def test_a_body_that_is_no_form_is_an_error(world: Changing, console: Console, kind: str, body: bytes) -> None:
    entry = world.entry()
    for target in ("/change/create-topic", "/change/apply"):
        answer = console.ask("POST", target, {**SAME_ORIGIN, "content-type": kind, "accept": "application/json"}, body)
        assert answer.code == 400
        assert "expected" in answer.json["error"]["message"]
    assert world.entry() == entry


def test_a_group_with_members_keeps_its_offsets(world: Changing, console: Console) -> None:
    with world.member():
        answer = console.send("/change/reset-offsets?group=readers", form_token=console.form_token())
        assert (answer.code, answer.json["error"]["message"]) == (400, "group 'readers' has 1 member")


# Once


def test_a_second_click_and_a_reload_do_nothing_again(world: Changing, console: Console) -> None:
    preview = console.preview("/change/fence?id=open")
    first = console.apply(preview).json
    entry = world.entry()
    assert console.apply(preview).json == first
    again = console.submit("/change/apply", form_token=preview["form_token"], plan=preview["plan"])
    assert again.headers["location"] == f"/changed/{preview['plan']}"
    for _ in range(3):
        assert console.data(again.headers["location"]) == first
    assert world.entry() == entry


def test_clicks_at_the_same_time_are_one_change(world: Changing, console: Console) -> None:
    preview = console.preview("/change/fence?id=open")
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda: answers.append(console.apply(preview))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.code for answer in answers} <= {200, 202}
    assert 200 in [answer.code for answer in answers]
    (described,) = world.admin.describe_transactions(["open"]).values()
    assert described.result().producer_epoch == preview["rows"][0]["producer_epoch"] + 2  # its abort, and the new one


def test_a_change_that_is_being_made_is_followed(world: Changing, console: Console, monkeypatch: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(store: Any, *, dry_run: bool) -> SweepReport:
        if not dry_run:
            begun.set()
            assert go_on.wait(30)
        return SweepReport(dry_run=dry_run)

    monkeypatch.setattr(jobs, "JOBS", {"sweep": slowly})
    preview = console.preview("/change/job", job="sweep")
    applying = threading.Thread(target=console.apply, args=(preview,))
    applying.start()
    assert begun.wait(30)
    running = console.get(f"/changed/{preview['plan']}", accept="text/html")
    assert (running.code, running.headers["refresh"]) == (202, "2")
    check(running.text)
    assert console.apply(preview).code == 202
    go_on.set()
    applying.join()
    assert "refresh" not in console.get(f"/changed/{preview['plan']}", accept="text/html").headers


def test_old_previews_are_forgotten_and_not_applied() -> None:
    previews: Any = Previews(RandomIds())
    preview: Any = Preview(None, "", None)  # type: ignore[arg-type]
    first = previews.keep(preview)
    numbers = [previews.keep(preview) for _ in range(50)]
    with pytest.raises(NotFound, match="has changed nothing"):
        previews.begin(first)
    assert previews.begin(numbers[0]) is preview
    assert previews.begin(numbers[0]) is None
    assert previews.result(numbers[0]) == (preview, None)
    previews.end(numbers[0], PreviewOutcome(200))
    assert previews.result(numbers[0]) == (preview, PreviewOutcome(200))
    with pytest.raises(NotFound, match="was not applied"):
        previews.result(numbers[1])


# What was previewed is what is applied


def test_another_transaction_of_the_id_is_not_aborted(world: Changing, console: Console) -> None:
    preview = console.preview("/change/abort?id=open")
    world.opened.commit_transaction()
    world.opened.begin_transaction()
    world.opened.produce("six", "next", partition=0)
    world.opened.flush()
    refuse(world, console, preview)
    world.opened.commit_transaction()


def test_a_transaction_that_has_ended_is_an_error(world: Changing, console: Console) -> None:
    preview = console.preview("/change/abort?id=open")
    world.opened.commit_transaction()
    refuse(world, console, preview, "has no open transaction", 400)


def test_what_a_transaction_has_appended_since_is_aborted_too(world: Changing, console: Console) -> None:
    preview = console.preview("/change/abort?id=open")
    world.opened.produce("t", "more")
    world.opened.flush()
    assert console.apply(preview).code == 200
    assert world.texts("t") == ["a", "b", "c"]


def test_another_producer_is_not_fenced(world: Changing, console: Console) -> None:
    preview = console.preview("/change/fence?id=open")
    world.transactional("open")
    refuse(world, console, preview)


def test_another_transaction_is_not_fenced(world: Changing, console: Console) -> None:
    preview = console.preview("/change/fence?id=open")
    world.opened.commit_transaction()
    refuse(world, console, preview)


def test_offsets_that_have_moved_are_not_reset(world: Changing, console: Console) -> None:
    preview = console.preview("/change/reset-offsets?group=readers", to="earliest")
    world.give_offset(3)
    refuse(world, console, preview)
    assert world.committed("readers") == 3


def test_offsets_of_a_group_that_is_read_again_are_not_reset(world: Changing, console: Console) -> None:
    preview = console.preview("/change/reset-offsets?group=readers", to="earliest")
    with world.member():
        refuse(world, console, preview, "has 1 member", 400)


def test_offsets_below_a_log_start_that_has_moved_are_not_set(world: Changing, console: Console) -> None:
    preview = console.preview("/change/reset-offsets?group=readers", to="earliest")
    where = TopicPartition("t", 0, 1)
    world.admin.delete_records([where])[where].result()
    refuse(world, console, preview)


def test_offsets_of_a_topic_that_is_another_are_not_set(world: Changing, console: Console) -> None:
    preview = console.preview("/change/reset-offsets?group=new", to="latest", topics="six:5")
    world.admin.delete_topics(["six"])["six"].result()
    world.store.create_topic("six", 6)
    refuse(world, console, preview)


def test_the_end_that_was_shown_is_the_end_that_is_set(world: Changing, console: Console) -> None:
    preview = console.preview("/change/reset-offsets?group=readers", to="latest")
    world.produce("d")
    assert console.apply(preview).code == 200
    assert world.committed("readers") == preview["rows"][0]["new_offset"] == 3


def test_a_topic_that_another_has_made_is_an_error(world: Changing, console: Console) -> None:
    preview = console.preview("/change/create-topic", topic="new", partitions=2)
    world.store.create_topic("new", 1)
    refuse(world, console, preview, "topic 'new' already exists", 400)


def test_a_topic_that_another_has_altered_is_left(world: Changing, console: Console) -> None:
    preview = console.preview("/change/alter-topic?topic=six", settings="segment.rows=7", partitions=9)
    world.admin.create_partitions([NewPartitions("six", 7)])["six"].result()
    refuse(world, console, preview)
    assert world.settings("six") == {}


def test_a_job_that_would_do_more_is_not_run(world: Changing, console: Console) -> None:
    world.store.create_topic("old", 1, settings={"retention.bytes": "0"})
    world.produce("1", topic="old")
    preview = console.preview("/change/job", job="retention")
    world.produce("2", topic="old")
    refuse(world, console, preview)
    assert world.texts("old") == ["1", "2"]


def refuse(
    world: Changing, console: Console, preview: Any, words: str = "has changed since the preview", code: int = 409
) -> None:
    """What was previewed is not done, and a page says why."""
    entry = world.entry()
    answer = console.apply(preview)
    assert (answer.code, answer.json["applied"], answer.json["error"]["title"]) == (code, False, "Not done")
    assert words in answer.json["error"]["message"]
    assert world.entry() == entry
    page = console.get(f"/changed/{preview['plan']}", accept="text/html")
    assert page.code == code
    check(page.text)
    assert "Not done" in page.text


# Names of anything


def test_hostile_names_are_text_on_each_page(world: Changing, console: Console) -> None:
    world.begin(HOSTILE, "t")
    token = console.form_token()
    console.send(f"/change/reset-offsets?group={ID}", form_token=token, topics="t")
    answers = [console.get(f"/change/{kind}?{name}={ID}", accept="text/html") for kind, name in SUBJECTS]
    previews = {kind: console.submit(f"/change/{kind}?id={ID}", form_token=token) for kind in ("abort", "fence")}
    answers += previews.values()
    answers.append(console.submit(f"/change/reset-offsets?group={ID}", form_token=token, topics="t", to="latest"))
    answers += [
        console.submit("/change/create-topic", form_token=token, topic=HOSTILE, settings=HOSTILE, columns=HOSTILE),
        console.submit(
            "/change/alter-topic?topic=six", form_token=token, settings=f"{HOSTILE}={HOSTILE}", unset=HOSTILE
        ),
        console.submit(f"/change/{ID}", form_token=token),
        console.submit("/change/apply", form_token=token, plan=HOSTILE),
        console.submit("/change/apply", form_token=HOSTILE, plan=HOSTILE),
        console.get(f"/changed/{ID}", accept="text/html"),
    ]
    answers.append(console.get(console.submit("/change/apply", **hidden(previews["abort"].text)).headers["location"]))
    for answer in answers:
        check(answer.text)
        assert "<script" not in answer.text.lower()
        assert "\x00" not in answer.text
        outside = re.sub(r' value="[^"]*"|<textarea.*?</textarea>', "", answer.text, flags=re.DOTALL)
        assert not {"\u202e", "\x1b"} & set(outside)
    described = world.admin.describe_transactions([HOSTILE])[HOSTILE].result()
    assert str(described.state) == "CompleteAbort"


SUBJECTS = [("alter-topic", "topic"), ("reset-offsets", "group"), ("abort", "id"), ("fence", "id")]


def test_hidden_values_are_on_no_page_of_a_change(world: Changing) -> None:
    world.produce("SECRET", key="SECRET", headers=[("SECRET", b"SECRET")])
    console = Console(world.store, hide_values=True, allow_changes=True)
    for form, given, *_ in CHANGES:
        preview = console.preview(form, **given)
        texts = [console.page(form), json.dumps(preview), console.submit(form, **given, form_token="x").text]
        texts += [console.apply(preview).text, console.get(f"/changed/{preview['plan']}", accept="text/html").text]
        assert not [text for text in texts if "SECRET" in text]
    assert console.get("/topics/t/records/0/0/value").code == 403
