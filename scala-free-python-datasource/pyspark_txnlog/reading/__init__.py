"""Reads by Python workers: batch, streams, system tables."""
