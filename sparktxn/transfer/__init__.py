"""Records in and out of a store: files of other programs, and topics of Kafka and of other stores."""

from sparktxn.transfer.exporting import FORMATS, ExportReport, export_topic
from sparktxn.transfer.fileimport import FileImport, ImportReport, import_files
from sparktxn.transfer.storeimport import StoreImportReport, import_from_store
from sparktxn.transfer.topicimport import KafkaConsumer, TopicImportReport, import_topic

__all__ = [
    "FORMATS",
    "ExportReport",
    "FileImport",
    "ImportReport",
    "KafkaConsumer",
    "StoreImportReport",
    "TopicImportReport",
    "export_topic",
    "import_files",
    "import_from_store",
    "import_topic",
]


def __dir__() -> list[str]:
    return sorted(__all__)
