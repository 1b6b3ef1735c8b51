"""Runs cases of the edge fuzzer again: python -m tests.edge 'Consumer.commit(offsets=5.0)' …; without any, all."""

from __future__ import annotations

import sys

from tests.edge.fuzzer import all_cases, run_cases


def main() -> int:
    """Run the cases whose text begins with one of the arguments."""
    wanted = tuple(sys.argv[1:]) or ("",)
    made, findings = run_cases([case for case in all_cases() if str(case).startswith(wanted)])
    for finding in findings:
        print(f"{finding.case}: {finding.what}")
    print(f"{made} calls, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
