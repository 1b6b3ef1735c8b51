"""The entry point that Spark knows: hands each use of the source to the module that does it.

Everything but pyspark's base class is imported when a use begins: Spark imports this module only to learn its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_txnlog.connecting.errorlines import with_one_line_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pyspark_txnlog.options.options import GivenOptions
    from pyspark_txnlog.reading.views import PinnedView


@with_one_line_errors
class DefaultSource(DataSource):
    """``txnlog``. Every option is in `options.OPTIONS`; all are checked on the driver, before anything is written.

    The read view of a batch read is pinned when the DataFrame is made. Spark plans a DataFrame more than once, and
    plans with different filters must not see different entries.
    """

    _given: GivenOptions | None = None
    _pinned: PinnedView | None = None
    _parallelism: int = 1

    @classmethod
    def name(cls) -> str:
        """Return what ``format()`` takes."""
        return "txnlog"

    def schema(self) -> StructType:
        """Return the columns of the topics, or of the system table, that the options name; pin the read view.

        Raises:
            ConfigurationError: an option is wrong, a topic does not exist, or the topics do not share one layout.
        """
        from pyspark_txnlog.options.options import SCHEMA, ReadOptions, parse_given
        from pyspark_txnlog.reading.batch_reader import read_schema
        from pyspark_txnlog.reading.system_tables import TableOptions, table_schema

        given = parse_given(self.options, SCHEMA)
        self._given = None if given.creates_table else given
        if "table" in given.values:
            schema, self._pinned = table_schema(TableOptions.parse(given, SCHEMA))
        else:
            schema, self._pinned = read_schema(ReadOptions.parse(given, SCHEMA))
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of one read view."""
        from pyspark_txnlog.options.options import READ, ReadOptions, options_of_table, parse_given
        from pyspark_txnlog.reading.batch_reader import make_reader
        from pyspark_txnlog.reading.system_tables import SystemTableReader, TableOptions

        given = parse_given(self._given or options_of_table(self.options, schema, READ), READ)
        if "table" in given.values:
            return SystemTableReader(TableOptions.parse(given, READ), schema, self._pinned)
        options = ReadOptions.parse(given, READ, parallelism=self._parallelism)
        return make_reader(options, schema, self._pinned)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that follows the log in whole transactions."""
        from pyspark_txnlog.options.options import READ_STREAM, options_of_table
        from pyspark_txnlog.reading.streams import make_stream_reader

        given = self._given or options_of_table(self.options, schema, READ_STREAM)
        return make_stream_reader(given, schema, self._pinned, parallelism=self._parallelism)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of one transaction."""
        from pyspark_txnlog.options.options import WRITE, WriteOptions, options_of_table
        from pyspark_txnlog.writing.batch_writer import TxnLogWriter

        return TxnLogWriter(WriteOptions.parse(options_of_table(self.options, schema, WRITE), WRITE), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer of one transaction per micro-batch, exactly once.

        In complete mode (`overwrite`) each micro-batch appends the whole result, as Kafka's sink does. A keyed topic
        refuses it.
        """
        from pyspark_txnlog.options.options import WRITE_STREAM, WriteOptions
        from pyspark_txnlog.writing.stream_writer import TxnLogStreamWriter

        # What a table keeps is not in `schema`: for toTable() too Spark passes on that of the rows alone.
        return TxnLogStreamWriter(WriteOptions.parse(self.options, WRITE_STREAM), schema, complete=overwrite)


def source_for(parallelism: int) -> type[DefaultSource]:
    """Return the source for a session that runs `parallelism` tasks at a time.

    The class travels to Spark's planning processes by value, and the number with it: they do not know the session.
    """

    class SourceOfSession(DefaultSource):
        _parallelism = parallelism

    return SourceOfSession
