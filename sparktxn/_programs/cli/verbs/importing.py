"""`txnlog import`: append files of other programs, a Kafka topic, or a topic of another store, to a topic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from sparktxn._foundation.config.store import StoreOptions
from sparktxn._foundation.values.quantities import counted
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.address import find_address, is_same_kind, split_option
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import Apply, argument, option, verb
from sparktxn.errors import StoreNotFound
from sparktxn.store import Store
from sparktxn.store.options import arguments
from sparktxn.transfer import TopicImportReport, import_files, import_from_store, import_topic

app = typer.Typer()

_FILES = "Import of files"
_KAFKA = "Import of a Kafka topic"
_STORE = "Import of a topic of another store"
_SETTINGS = {"group.id": "txnlog-import", "isolation.level": "read_committed", "auto.offset.reset": "error"}
_OWN_SETTINGS = {"enable.auto.commit": False, "enable.partition.eof": True}


_Columns = Annotated[
    list[str] | None,
    option("--column", metavar="NAME=COLUMN", help="The file's column for one of the topic.", panel=_FILES),
]
_Ignore = Annotated[
    bool, typer.Option("--ignore-other-columns", help="Leave out what the topic lacks.", rich_help_panel=_FILES)
]
_ByKey = Annotated[
    bool, typer.Option("--by-key", help="Choose partitions by key, not as files say.", rich_help_panel=_FILES)
]
_Delete = Annotated[
    bool, typer.Option("--delete", help="Delete the keys of the rows, of a keyed topic.", rich_help_panel=_FILES)
]
_Kafka = Annotated[
    str | None,
    option("--kafka", metavar="HOST:PORT/TOPIC", help="The topic to read; needs confluent-kafka.", panel=_KAFKA),
]
_Options = Annotated[
    list[str] | None, option("--kafka-option", metavar="NAME=VALUE", help="A setting of its consumer.", panel=_KAFKA)
]
_Config = Annotated[
    list[Path] | None,
    option("--kafka-config", metavar="FILE", help="Settings of its consumer, name=value in each line.", panel=_KAFKA),
]
_Name = Annotated[
    str | None, option("--name", help="What the source is called. Default: the address with the topic.", panel=_KAFKA)
]
_AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Go on where the source has deleted records.", rich_help_panel=_KAFKA)
]
_FromStore = Annotated[
    str | None,
    option(
        "--from-store",
        metavar="ADDRESS",
        help="The store that has TOPIC. Its records keep all but their offsets.",
        panel=_STORE,
    ),
]
_Entry = Annotated[
    int | None, option("--entry", min=1, help="As of this entry of that store. Default: now.", panel=_STORE)
]
_FromOptions = Annotated[
    list[str] | None, option("--from-option", metavar="NAME=VALUE", help="A setting of it.", panel=_STORE)
]
_FromConfig = Annotated[
    list[Path] | None,
    option("--from-config", metavar="FILE", help="Settings of it, name=value in each line.", panel=_STORE),
]
_FromProfile = Annotated[
    str | None, option("--from-profile", metavar="NAME", help="The profile with its settings.", panel=_STORE)
]


@verb(
    app,
    "import",
    examples=[
        "txnlog import -t orders new-orders.csv",
        "txnlog import -t orders new-orders.csv --apply",
        "txnlog import -t orders people.csv --column key=id --column value=name --ignore-other-columns --apply --json",
        "txnlog import --from-store archive orders --entry 7 --apply",
    ],
)
def import_(
    session: Session,
    files: Annotated[
        list[str] | None,
        argument(
            metavar="FILE…",
            help="Parquet, Arrow, CSV or JSON-lines files, or the folder of an export. With --from-store its topic.",
        ),
    ] = None,
    topic: Annotated[
        str | None,
        option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="The topic. With --from-store by default that of the same name.",
            autocompletion=completion.topics,
        ),
    ] = None,
    columns: _Columns = None,
    ignore: _Ignore = False,
    by_key: _ByKey = False,
    delete: _Delete = False,
    kafka: _Kafka = None,
    kafka_option: _Options = None,
    kafka_config: _Config = None,
    name: _Name = None,
    accept_loss: _AcceptLoss = False,
    from_store: _FromStore = None,
    entry: _Entry = None,
    from_option: _FromOptions = None,
    from_config: _FromConfig = None,
    from_profile: _FromProfile = None,
    apply: Apply = False,
) -> None:
    """Append files, or what a topic of Kafka or of another store has, to a topic; each record takes effect once.

    Without --apply it prints what would be imported. Run it again after a crash, or for what has been added since: what
    was imported before is left out.
    """
    if from_store is not None:
        others = (columns, ignore, by_key, delete, kafka)
        if files is None or len(files) != 1 or any(others):
            raise WrongUsage("--from-store takes the name of one topic, and no option of files or of Kafka")
        from_settings = _source_settings(session, from_store, from_option or (), from_config or (), from_profile)
        _import_from_store(session, topic or files[0], from_store, from_settings, files[0], entry, apply=apply)
        return
    if entry is not None or from_option or from_config or from_profile:
        raise WrongUsage("--entry and --from-… belong to --from-store: add it")
    if topic is None:
        raise WrongUsage("--topic is missing: expected the topic to append to")
    if bool(files) == (kafka is not None):
        raise WrongUsage("give files, or a topic with --kafka")
    store = session.store()
    if kafka is None:
        _import_files(
            session,
            store,
            topic,
            [Path(arguments.path("FILE", file)) for file in files or ()],
            columns or [],
            ignore=ignore,
            by_key=by_key,
            delete=delete,
            apply=apply,
        )
        return
    if delete:
        raise WrongUsage("--delete belongs to files: leave it out")
    settings = tuple(kafka_option or ()), tuple(kafka_config or ())
    _import_from_kafka(session, store, topic, kafka, settings, name, accept_loss=accept_loss, apply=apply)


def _import_from_kafka(
    session: Session,
    store: Store,
    topic: str,
    kafka: str,
    given: tuple[tuple[str, ...], tuple[Path, ...]],
    name: str | None,
    *,
    accept_loss: bool,
    apply: bool,
) -> None:
    bootstrap, _, source = kafka.rpartition("/")
    if not bootstrap or not source:
        raise WrongUsage(f"--kafka {kafka!r} is malformed: expected HOST:PORT/TOPIC")
    client = _client()
    settings = find_address(bootstrap, *given, None).settings
    consumer = client.Consumer({**_SETTINGS, "bootstrap.servers": bootstrap, **settings, **_OWN_SETTINGS})
    try:
        with session.out.progress("import: asking where the source ends …") as shown:
            report = import_topic(
                store,
                topic,
                consumer,
                source,
                name=name or kafka,
                topic_partition=client.TopicPartition,
                accept_loss=accept_loss,
                dry_run=not apply,
                on_progress=lambda records: shown(f"import: {counted(records, 'record')} …"),
            )
    finally:
        consumer.close()
    _show(session, report)


def _show(session: Session, report: TopicImportReport) -> None:
    row = msgspec.to_builtins(report)
    positions, ends = row.pop("positions"), row.pop("ends")
    row["partitions"] = [
        {"partition": number, "position": position, "end": ends[number]} for number, position in positions.items()
    ]
    session.out.row(row)
    if report.dry_run:
        session.out.remark("nothing was imported: add --apply to import these records")


def _import_files(
    session: Session,
    store: Store,
    topic: str,
    files: list[Path],
    columns: list[str],
    *,
    ignore: bool,
    by_key: bool,
    delete: bool,
    apply: bool,
) -> None:
    done_bytes = 0

    def note(read_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes = read_bytes

    def show(file: str, records: int) -> None:
        meter.at(done_bytes, f", {counted(records, 'record')} of {file}")

    with session.out.measured("import: reading files", store.log.clock) as meter:
        meter.begin(sum(_size_bytes(path) for path in files))
        report = import_files(
            store,
            topic,
            files,
            columns=dict(split_option("--column", text) for text in columns),
            other_columns="ignore" if ignore else "refuse",
            keep_partitions=not by_key,
            delete=delete,
            dry_run=not apply,
            on_progress=show,
            on_bytes=note,
        )
    session.out.rows((msgspec.to_builtins(one) for one in report.files), none="no files")
    if not apply:
        session.out.remark("nothing was imported: add --apply to import what does not exist")


def _size_bytes(path: Path) -> int:
    """Return the size of a file, or of those in a folder; what cannot be read is an error of the import."""
    try:
        found = path.rglob("*") if path.is_dir() else [path]
        return sum(one.stat().st_size for one in found if one.is_file())
    except OSError:
        return 0


def _source_settings(
    session: Session, address: str, options: Sequence[str], config: Sequence[Path], profile: str | None
) -> StoreOptions:
    """Return the settings of the store that is imported from; one of the target's kind has the target's, too."""
    own = find_address(address, options, config, profile).settings
    same_kind = is_same_kind(session.address.store, address)
    return StoreOptions({**(session.store_settings() if same_kind else {}), **own})


def _import_from_store(
    session: Session,
    topic: str,
    address: str,
    settings: StoreOptions,
    source_topic: str,
    entry: int | None,
    *,
    apply: bool,
) -> None:
    store = session.store()
    try:
        source = Store.open(address, options=settings)
    except StoreNotFound as error:
        raise StoreNotFound(f"--from-store: {str(error).partition(': create one')[0]}") from None
    with source, session.out.progress("import: reading the log …") as shown:
        report = import_from_store(
            store,
            topic,
            source,
            source_topic,
            entry=entry,
            dry_run=not apply,
            on_progress=lambda records: shown(f"import: {counted(records, 'record')} …"),
            timeout_s=session.job_timeout_s,
        )
    session.out.row(msgspec.to_builtins(report))
    if not apply:
        session.out.remark("nothing was imported: add --apply to import these records")


def _client() -> Any:
    """Return confluent-kafka, which is not a dependency of this package.

    Raises:
        WrongUsage: it is not installed.
    """
    try:
        import confluent_kafka  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ModuleNotFoundError:
        raise WrongUsage("--kafka needs confluent-kafka: pip install confluent-kafka") from None
    return confluent_kafka
