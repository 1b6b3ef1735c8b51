"""Writing the log: lists of commands, and the loop that puts them into entries.

A caller leaves a list in the queue and gets a ticket. The thread that has the turn writes for all that wait::

    caller ── list ──► queue ──► turn ──► one entry of many lists ──► slot ──► put_if_absent ──► won, lost, unknown
       ▲             queue.py  queue.py       composing.py        slotrace.py                          │
       └──────────────── ticket: the answer of a confirmed state, or an error ◄────────────────────────┘

A list is in flight while an entry that may hold it has no known outcome. `committer.py` is the loop, `intents.py` has
lists that wait in the store for another writer, `transactiontimeouts.py` and `storeclock.py` say when time has passed.
"""
