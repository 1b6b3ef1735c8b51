"""Transactions that clients have open at a gateway."""
