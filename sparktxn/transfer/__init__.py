"""Records in and out of a store: files of other programs, and Kafka's topics."""

from sparktxn.transfer.exporting import FORMATS, ExportReport, export_topic

__all__ = ["FORMATS", "ExportReport", "export_topic"]
