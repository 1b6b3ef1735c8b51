"""Verify a store, and repair it."""
