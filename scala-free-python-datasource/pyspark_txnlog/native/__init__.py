"""Reads and writes that Spark does by itself, from and to the files of a store."""
