"""Writes docs/configuration.md from the tables of settings, so that the document and the code say the same.

Run by ``make docs``; a test compares the file with what this makes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark_txnlog.options.options import (
    KAFKA_PREFIX,
    MAPPED_SETTINGS,
    OPTIONS,
    REFUSED_READING,
    REFUSED_WRITING,
    Option,
)
from sparktxn._foundation.config.maintenance import COMPACT_SETTINGS, REWRITE_SETTINGS, SWEEP_SETTINGS, VACUUM_SETTINGS
from sparktxn._foundation.config.settings import Setting, settings_of
from sparktxn._foundation.config.store import STORE_SETTINGS
from sparktxn._foundation.config.topic import IGNORED_TOPIC_SETTINGS, STORE_WIDE_SETTINGS, TOPIC_SETTINGS
from sparktxn._kafka.settings.client import PolledSettings
from sparktxn._kafka.settings.consumer import CONSUMER_SETTINGS
from sparktxn._kafka.settings.halfmessage import HALF_MESSAGE_SETTINGS
from sparktxn._kafka.settings.producer import PRODUCER_SETTINGS

ONLY_CHECKED = "Only checked: "
"""How the meaning of a setting begins that changes nothing."""

TARGET = Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# Settings

<!-- Made by `make docs` from the tables in sparktxn/_foundation/config/ and pyspark_txnlog/options/: change those. -->

All settings have Kafka's dotted names. A wrong name or value is an error that says what was expected, and the nearest
right name, before anything is written. Numbers are whole where nothing else is said, in the unit of the name, and the
bounds are included. Numbers and `true` or `false` may be written as text. Files in
[conf/](../conf/) show common sets: `Producer(sparktxn.read_properties("conf/producer.properties"))`.

## Durations and sizes

A number without a unit has the unit that the name says, as in Kafka: `linger.ms=5` is 5 milliseconds, and
`segment.bytes=1048576` a MiB. Text may have a unit of its own: `15m`, `64MiB`. It means the same in each setting, in
each option of Spark, and on the command line. The number before it is whole, and is converted exactly: 90 seconds are
not a whole number of minutes.

| | units |
| --- | --- |
| durations | `ms`, `s`, `m` or `min`, `h`, `d`, and words such as `2 weeks` |
| sizes | `B`, `KiB`, `MiB`, `GiB`, `TiB`, each 1,024 of the one before; also written `k` or `kb`, as in Spark |

Where the name says no unit, as in `--every 1h` of the command, a number needs one. Spark's `maxTriggerDelay` alone
takes it for milliseconds, as Spark does. The log keeps, and `describe_configs` shows, the number of the name's unit.
"""

STORE = """\
## Store

`Store.open(uri, options=…)`, every client, and Spark's options take these. Settings that start with `storage.` go to
the object store's client without that prefix: `storage.key`, `storage.secret`, `storage.endpoint_url` and the like for
S3. Without them S3's own chain is used: environment, profile, instance role.
"""

CLIENTS = """\
## Clients

`sparktxn.Producer({…})` and `sparktxn.Consumer({…})` take these, their own below, and the store's; `AdminClient({…})`
takes `bootstrap.servers` and the store's. librdkafka's other settings, about a network of brokers and its security,
are accepted and ignored. A debug line names them, and a warning those of security. A name that librdkafka does not
know is an error.
"""

PRODUCER = """\
### Producer
"""

CONSUMER = """\
### Consumer
"""

HALF_MESSAGES = """\
## Half messages

`sparktxn.halfmessage.TransactionMQProducer(group, {…})` takes these, a producer's `bootstrap.servers` and
`partitioner`, and the store's; `ClientConfiguration` of `sparktxn.halfmessage.rocketmq5` takes them as `settings`.
Names of RocketMQ's brokers and clients are aliases.
"""

TOPIC = """\
## Topic

Given when a topic is created (`NewTopic(…, config={…})`), changed by `AdminClient.incremental_alter_configs`, and kept
in the log.
"""

STORE_WIDE = """\
The store has settings too: `AdminClient.incremental_alter_configs` with `ConfigResource("BROKER", "0")`, or
`txnlog settings`. They are kept in the log, so every process keeps to them. `reject.transaction.message` of a store is
for all topics that do not set it.
"""

IGNORED_TOPIC = """\
Kafka's other settings of topics are accepted, kept and shown by `describe_configs`, and change nothing here:
"""

MAINTENANCE = """\
## Maintenance

`sparktxn.maintenance.sweep(store, {…})` and `Sweeper(store, {…})` take these.
"""

VACUUM = """\
`sparktxn.maintenance.vacuum(store, {…})` takes these.
"""

REWRITE = """\
`sparktxn.maintenance.rewrite(store, {…})` and `plan_rewrite(store, {…})` take these.
"""

COMPACT = """\
`sparktxn.maintenance.compact(store, {…})` takes these.
"""

CHECKED = """\
## Only checked

These are accepted, and a wrong value is an error. A right one changes nothing:
"""

SPARK = """\
## Spark

Options of `format("txnlog")`. Names are not case-sensitive; the prefixes `kafka.` and `txnlog.` are accepted. The
store's settings and `storage.*` are options too. A batch checks the limits of a stream's triggers and ignores them,
with a warning. One that has no effect without another option is warned of as well. Options that
[change nothing](#only-checked) stand below.
"""

KAFKA = """\
### Settings of Kafka's clients

What `format("kafka")` hands to Kafka's clients, `kafka.*`, is accepted by `format("txnlog")`. Settings that are not
listed here change nothing: one warning lists their names, never their values. One that looks like another misspelt is
an error. The others:
"""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells may hold any text."""
    lines = [header, ["-"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def shown(default: object) -> str:
    """A default as a user would write it; nothing where there is none."""
    if default is None or default == "":
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def expected(setting: Setting) -> str:
    """Return what a setting's parser expects; of a whole number its bounds alone."""
    text = setting.parse.__doc__ or ""
    text = re.sub(r"\ba whole number(?: of \w+)? from (\S+) to (\S+)", r"\1 to \2", text)
    return text.replace("9007199254740992", "2^53").replace("2147483647", "2^31 - 1").replace("2147483648", "2^31")


def settings_table(settings: Iterable[Setting]) -> str:
    """The settings with what their parsers say that they expect."""
    return table(
        ("setting", "default", "expected", "meaning"),
        [(f"`{known.name}`", shown(known.default), expected(known), known.meaning) for known in settings],
    )


def options_table() -> str:
    """Spark's options, with what knows them."""
    return table(
        ("option", "for", "default", "meaning"),
        [
            (f"`{option.name}`", ", ".join(sorted(option.uses)), shown(option.default), option.meaning)
            for option in OPTIONS
            if not is_only_checked(option)
        ],
    )


def kafka_list() -> str:
    """What becomes of settings of Kafka's clients that are not ignored."""
    mapped = [f"`{KAFKA_PREFIX}{name}` is the option `{option}`" for name, option in MAPPED_SETTINGS.items()]
    refused = [
        f"{use} refuses {' and '.join(f'`{KAFKA_PREFIX}{name}`' for name in names)}: {advice}"
        for use, settings in (("a read", REFUSED_READING), ("a write", REFUSED_WRITING))
        for advice, names in names_by_meaning(settings.items()).items()
    ]
    return bullets([*mapped, *refused])


def checked_list() -> str:
    """The settings and options that change nothing, with the reason."""
    checked = [known for known in (*PRODUCER_SETTINGS, *OPTIONS) if is_only_checked(known)]
    given = names_by_meaning((known.name, known.meaning.removeprefix(ONLY_CHECKED)) for known in checked)
    return bullets(f"{', '.join(f'`{name}`' for name in names)}: {meaning}" for meaning, names in given.items())


def is_only_checked(known: Setting | Option) -> bool:
    """Return whether a setting changes nothing, whatever its value is."""
    return known.meaning.startswith(ONLY_CHECKED)


def names_by_meaning(meanings: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names that share a meaning, in the order of their first ones."""
    names: dict[str, list[str]] = {}
    for name, meaning in meanings:
        names.setdefault(meaning, []).append(name)
    return names


def bullets(items: Iterable[str]) -> str:
    """A Markdown list whose lines are not too long."""
    return "".join(
        textwrap.fill(item, 120, initial_indent="* ", subsequent_indent="  ", break_on_hyphens=False) + "\n"
        for item in items
    )


def settings_of_clients() -> list[Setting]:
    """The settings that producers and consumers share, with the defaults of both."""
    of_consumers = {known.name: known for known in CONSUMER_SETTINGS}
    shared = {known.name: known for known in settings_of(PolledSettings)}
    defaults = {
        known.name: dict.fromkeys((known.default, of_consumers[known.name].default))
        for known in PRODUCER_SETTINGS
        if known.name in shared
    }
    return [
        known._replace(default=" or ".join(map(str, defaults[name])) if len(defaults[name]) > 1 else known.default)
        for name, known in shared.items()
    ]


def own(settings: Iterable[Setting], others: Iterable[str]) -> list[Setting]:
    """Return the settings that change something and stand in no other table."""
    elsewhere = set(others)
    return [known for known in settings if known.name not in elsewhere and not is_only_checked(known)]


def wrapped(text: str) -> str:
    """A paragraph whose lines are not too long."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def document() -> str:
    """The whole document."""
    shared = [known.name for known in settings_of_clients()]
    sections = [
        INTRODUCTION,
        STORE,
        settings_table(STORE_SETTINGS),
        CLIENTS,
        settings_table(settings_of_clients()),
        PRODUCER,
        settings_table(own(PRODUCER_SETTINGS, shared)),
        CONSUMER,
        settings_table(own(CONSUMER_SETTINGS, shared)),
        HALF_MESSAGES,
        settings_table(own(HALF_MESSAGE_SETTINGS, [*shared, "partitioner"])),
        TOPIC,
        settings_table(TOPIC_SETTINGS),
        STORE_WIDE,
        settings_table(own(STORE_WIDE_SETTINGS, [known.name for known in TOPIC_SETTINGS])),
        IGNORED_TOPIC,
        wrapped(f"{', '.join(f'`{name}`' for name in sorted(IGNORED_TOPIC_SETTINGS))}."),
        MAINTENANCE,
        settings_table(SWEEP_SETTINGS),
        VACUUM,
        settings_table(VACUUM_SETTINGS),
        REWRITE,
        settings_table(REWRITE_SETTINGS),
        COMPACT,
        settings_table(COMPACT_SETTINGS),
        SPARK,
        options_table(),
        KAFKA,
        kafka_list(),
        CHECKED,
        checked_list(),
    ]
    return "\n".join(sections)


if __name__ == "__main__":
    TARGET.write_text(document())
    print(f"wrote {TARGET.name}")
