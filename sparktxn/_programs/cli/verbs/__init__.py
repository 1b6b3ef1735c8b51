"""The verbs of the command `txnlog`: one module each."""
