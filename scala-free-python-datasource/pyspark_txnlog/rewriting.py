"""Merge small segments over a cluster: a job for ``spark-submit``, or ``python -m pyspark_txnlog.rewriting``.

The driver plans and puts results into effect. Executors read segments and write files; they never open the log.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparktxn import Store
from sparktxn.maintenance import RewriteReport, RewriteTask, RewrittenFiles, rewrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["main", "rewrite_with_spark"]


def rewrite_with_spark(
    spark: SparkSession,
    path: str,
    settings: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> RewriteReport:
    """Merge the segments that `settings` select, by tasks on the executors of `spark`.

    Args:
        spark: the session; executors need this package and ways to the store.
        path: the store's address.
        settings: ``rewrite.*`` settings.
        options: the store's settings.
        dry_run: only return what would be merged.

    Raises:
        ConfigurationError, StoreError: as `sparktxn.maintenance.rewrite`.
    """
    context = spark.sparkContext

    def run(work: Callable[[RewriteTask], RewrittenFiles], tasks: Sequence[RewriteTask]) -> Iterable[RewrittenFiles]:
        found: list[RewrittenFiles] = context.parallelize(tasks, len(tasks)).map(work).collect()
        return found

    with Store.open(path, options=options) as store:
        return rewrite(store, settings, dry_run=dry_run, run=run)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:
            raise SystemExit(f"{text!r} is no setting: expected name=value")
        pairs[name] = value
    return pairs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job by a command line; return its exit code."""
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(prog="rewriting", description="Merge small segments of a store over a cluster.")
    parser.add_argument("path", help="the store: a folder, s3://bucket/prefix, …")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, rewrite.…")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="a setting of the store")
    parser.add_argument("--apply", action="store_true", help="do it; else only print what would be merged")
    given = parser.parse_args(arguments)
    settings, options = _pairs(given.set), _pairs(given.option)
    spark = SparkSession.builder.appName("txnlog rewrite").getOrCreate()
    report = rewrite_with_spark(spark, given.path, settings, options=options, dry_run=not given.apply)
    sys.stdout.write(f"{report}\n")
    return 1 if report.lost or report.unresolved else 0


if __name__ == "__main__":
    raise SystemExit(main())
