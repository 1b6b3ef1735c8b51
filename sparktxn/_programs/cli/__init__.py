"""The command `txnlog`: shows what is in a store, reads and writes it, and runs its maintenance. One verb per file."""
