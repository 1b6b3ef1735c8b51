"""Figures of a store for Prometheus, read from its log: the page of `txnlog exporter`, for any server.

`StoreMetrics` makes the page; it needs the extra `metrics`.
"""
