"""Stored objects: bytes or JSON in, frozen values out; no I/O."""
