"""`txnlog doctor`: prove that a store and this machine keep what sparktxn relies on."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Annotated

import typer

from sparktxn import ReadView
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn._foundation.values.quantities import counted
from sparktxn._programs.cli.doctorstore import FAILED as WRONG
from sparktxn._programs.cli.doctorstore import OK, WARNING, Check, examine, examine_executors, examine_spark
from sparktxn._programs.cli.failures import FAILED
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import option, verb
from sparktxn.errors import StoreError, StoreNotFound, extra_to_install
from sparktxn.store.reading import key_columns, keyed_figures
from sparktxn.store.registry import objects_of

app = typer.Typer()

_MANY_ROWS = 1_000_000
_PACKAGES = ("sparktxn", "pyarrow", "msgspec", "s3fs", "gcsfs", "adlfs", "azure-storage-blob", "pyspark")


@verb(app, "doctor", examples=["txnlog doctor", "txnlog doctor --json"])
def doctor(
    session: Session,
    spark: Annotated[
        str | None,
        option(
            "--spark",
            metavar="MASTER",
            help="Start Spark there, such as local[2] or spark://host:7077, and ask its executors.",
        ),
    ] = None,
) -> None:
    """Prove on your store and machine that conditional puts are honoured; check permissions, clocks and versions.

    It writes small objects, and deletes them. The address need not hold a store yet. Where PySpark is installed, its
    version, Java and the Python of its workers are checked, too. The exit code is 1 if a check fails.
    """
    with session.out.progress("doctor: examining the store …"):
        checks = list(_checks(session, spark))
    session.out.rows((check._asdict() for check in checks), none="")
    failed = [check for check in checks if check.result == WRONG]
    if failed:
        session.out.remark(f"{counted(len(failed), 'check')} failed: this store or machine must not be used as it is")
        raise typer.Exit(FAILED)


def _checks(session: Session, spark: str | None) -> Iterator[Check]:
    yield _versions()
    objects = objects_of(session.address.store, session.store_settings())
    yield from examine(objects, SystemClock(), RandomIds())
    try:
        store = session.store()
        view = store.view(None, timeout_s=session.timeout_s)
    except StoreNotFound:
        yield Check("store", WARNING, "there is no store at this address yet", "txnlog topics create NAME makes one")
    except StoreError as error:
        yield Check("store", WRONG, str(error), "txnlog verify says what else is wrong")
    else:
        yield Check("store", OK, f"its log ends at entry {view.entry}, and it has {counted(len(view.topics), 'topic')}")
        yield from _bases(view)
    machine = list(examine_spark())
    yield from machine
    if spark is not None and not machine:
        yield Check("spark", WRONG, "PySpark is not installed for this Python", extra_to_install("spark"))
    elif spark is not None:
        yield from examine_executors(spark, session.address.store, session.store_settings())


def _bases(view: ReadView) -> Iterator[Check]:
    """Yield the topics whose latest rows are found without the help of a compaction, though they have many."""
    for topic in view.topics.values():
        if not key_columns(topic.settings):
            continue
        rows = keyed_figures(view, topic, 0).rows_without_base
        if rows >= _MANY_ROWS:
            found = f"{rows:,} rows of topic {topic.name!r} were never compacted: latest reads compare their keys"
            yield Check("latest rows", WARNING, found, "run txnlog maintain once a day, or more often")


def _versions() -> Check:
    found = [f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return Check("versions", OK, ", ".join(found))
