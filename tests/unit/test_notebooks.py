"""What notebooks show of values."""

from __future__ import annotations

import re

from sparktxn import KafkaError, Message, Store
from sparktxn.admin import AdminClient, TopicCollection
from sparktxn.values.notebooks import html_table
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


def test_a_message_shows_sizes_and_no_content() -> None:
    shown = repr(Message("t", 1, 2, b"secret", b"v" * 100_000))
    assert shown == "Message(topic='t', partition=1, offset=2, key=6 bytes, value=100000 bytes)"
    assert "_PARTITION_EOF" in repr(Message("t", 1, 2, error=KafkaError(KafkaError._PARTITION_EOF)))
