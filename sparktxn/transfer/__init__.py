"""Records in and out of a store: files of other programs, and Kafka's topics."""

from sparktxn.transfer.exporting import FORMATS, ExportReport, export_topic
from sparktxn.transfer.fileimport import FileImport, ImportReport, import_files
from sparktxn.transfer.topicimport import KafkaConsumer, TopicImportReport, import_topic

__all__ = [
    "FORMATS",
    "ExportReport",
    "FileImport",
    "ImportReport",
    "KafkaConsumer",
    "TopicImportReport",
    "export_topic",
    "import_files",
    "import_topic",
]
