"""What notebooks show of values."""

from __future__ import annotations

import re
from html import escape

import pytest

from sparktxn import Consumer, KafkaError, Message, Producer, Store, StoreUnavailable, TopicPartition
from sparktxn._foundation.values.quantities import html_table
from sparktxn.admin import AdminClient, TopicCollection
from tests.world import next_number


def cells(html: str) -> list[list[str]]:
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]


def test_text_is_escaped_and_long_tables_are_cut() -> None:
    html = html_table("<b>", ["n"], ([f"<{number}>"] for number in range(300)))
    assert html.startswith("<table><caption>&lt;b&gt;</caption>")
    shown = cells(html)
    assert (len(shown), shown[1], shown[-2:]) == (202, ["&lt;0&gt;"], [["&lt;199&gt;"], ["…"]])


def test_views_topics_and_groups_show_their_offsets_settings_and_members() -> None:
    uri = f"memory://notebook-{next_number()}"
    with Store.open(uri, create=True) as store:
        topic = store.create_topic("orders", 2, settings={"segment.format": "arrow"})
        view = store.view()._repr_html_()
        assert "at entry" in view
        assert cells(view)[1:] == [["orders", "0", "0", "0", "0"], ["orders", "1", "0", "0", "0"]]
        assert ["segment.format", "arrow"] in cells(topic._repr_html_())
        with AdminClient({"bootstrap.servers": uri}) as admin:
            described = admin.describe_topics(TopicCollection(["orders"]))["orders"].result()
            assert ["partitions", "2"] in cells(described._repr_html_())


HOSTILE = "<script>alert('x')</script>&\""


def test_stores_and_clients_show_their_topics_and_where_they_are() -> None:
    uri = f"memory://notebook-{next_number()}"
    store = Store.open(uri, create=True)
    store.create_topic("orders", 2, settings={"segment.format": "arrow"})
    shown = store._repr_html_()
    assert shown.startswith(f"<p>Store(&#x27;{uri}&#x27;)</p><table><caption>read view at entry ")
    assert cells(shown)[1:] == [["orders", "0", "0", "0", "0"], ["orders", "1", "0", "0", "0"]]
    given = {"bootstrap.servers": uri}
    with AdminClient(given) as admin:
        assert cells(admin._repr_html_())[1:] == [[uri, "False"]]
    with Producer(given, transactional_id=HOSTILE) as producer:
        assert cells(producer._repr_html_())[1:] == [[uri, escape(HOSTILE), "UNINITIALIZED", "0"]]
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("orders", b"v", partition=1)
        assert cells(producer._repr_html_())[1][2:] == ["IN_TRANSACTION", "1"]
        producer.commit_transaction()
    with Consumer(given, group_id=HOSTILE, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        assert HOSTILE not in consumer._repr_html_()
        assert escape(HOSTILE) in consumer._repr_html_().replace("\\", "")
        consumer.assign([TopicPartition("orders", 1)])
        assert cells(consumer._repr_html_())[1:] == [["orders", "1", "", ""]]
        consumer.consume(1, 30)
        consumer.commit(asynchronous=False)
        assert cells(consumer._repr_html_())[1:] == [["orders", "1", "1", "1"]]
    store.close()
    assert "this store is closed" in store._repr_html_()


def test_a_store_that_does_not_answer_shows_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object, **__: object) -> None:
        raise StoreUnavailable(f"no answer from {HOSTILE}")

    with Store.open(f"memory://notebook-{next_number()}", create=True) as store:
        monkeypatch.setattr(Store, "view", silent)
        assert cells(store._repr_html_())[1:] == [[f"no answer from {escape(HOSTILE)}"]]


def test_a_message_shows_sizes_and_no_content() -> None:
    shown = repr(Message("t", 1, 2, b"secret", b"v" * 100_000))
    assert shown == "Message(topic='t', partition=1, offset=2, key=6 bytes, value=100000 bytes)"
    assert "_PARTITION_EOF" in repr(Message("t", 1, 2, error=KafkaError(KafkaError._PARTITION_EOF)))
