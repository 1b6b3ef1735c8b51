"""Jobs of maintenance over a cluster: for ``spark-submit`` of this file, or ``python -m pyspark_txnlog.maintenance``.

It takes the arguments of the command `txnlog`: ``maintain --apply``, ``copy s3://backup/shop --apply``. The driver
plans, and puts results into effect. Executors read and write records; they never open the log.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pyspark_txnlog.connecting.errorlines import one_line_errors
from pyspark_txnlog.connecting.sessions import check_session
from pyspark_txnlog.sparkinternals import context_of
from sparktxn.errors import KafkaException, StoreUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparktxn.maintenance.taskrunning import RunTasks

_TASK: Final = "task"
_NUMBER: Final = "number"


def run_on(spark: SparkSession) -> RunTasks[Any, Any]:
    """Return what does the tasks of a job on the executors of `spark`: the argument `run` of maintenance.

    For example ``compact(store, run=run_on(spark))``. Executors need this package and ways to the store. Spark repeats
    a task whose process dies or whose store does not answer (``spark.task.maxFailures``). What both attempts of a task
    have written is used once.

    Args:
        spark: a session, of Spark Connect or not.

    Raises:
        TypeError: it is something else.
    """
    check_session(spark)
    context = context_of(spark)

    def run(work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        if not tasks:
            return []
        outcome = one_line_errors(partial(_outcome, work))
        if context is None:
            results = _by_frame(spark, outcome, tasks)
        else:
            results = context.parallelize(tasks, len(tasks)).map(outcome).collect()
        for result in results:
            if isinstance(result, KafkaException):
                raise result
        return results

    return run


def _by_frame(spark: SparkSession, outcome: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    """Do the same where there is no context, as with Spark Connect; Spark needs pandas for it."""

    def done(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, task in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                result = pickle.dumps(outcome(pickle.loads(task)))
                yield pa.record_batch(
                    [pa.array([number], pa.int32()), pa.array([result], pa.binary())], [_NUMBER, _TASK]
                )

    columns = [pa.array(range(len(tasks)), pa.int32()), pa.array([pickle.dumps(task) for task in tasks], pa.binary())]
    dealt = spark.createDataFrame(pa.table(columns, [_NUMBER, _TASK])).repartitionById(len(tasks), _NUMBER)
    rows = dealt.mapInArrow(done, f"{_NUMBER} int, {_TASK} binary").collect()
    return [pickle.loads(row[_TASK]) for row in sorted(rows, key=lambda row: row[_NUMBER])]


def _outcome(work: Callable[[Any], Any], task: Any) -> Any:
    """Return what `work` returns, or the error that another attempt would meet again.

    A job handles some errors, such as a view that a vacuum has passed. It would not know them as Spark's.
    """
    try:
        return work(task)
    except StoreUnavailable:
        raise
    except KafkaException as error:
        return error


def main() -> int:
    """Run the command `txnlog` with this process's arguments, its tasks on executors; return its exit code."""
    from pyspark.sql import SparkSession

    from sparktxn.__main__ import main as run_command

    spark = SparkSession.builder.appName(" ".join(["txnlog", *sys.argv[1:2]])).getOrCreate()
    try:
        return run_command(run_on(spark))
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
