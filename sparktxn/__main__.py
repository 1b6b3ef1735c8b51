"""Run the command `txnlog` as ``python -m sparktxn``."""

import sys

from sparktxn._programs.cli.launch import main as main

if __name__ == "__main__":
    sys.exit(main())
