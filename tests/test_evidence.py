"""The evidence of the tests is whole: what tests/evidence.txt names is there."""

from __future__ import annotations

from tests.evidence import LIST, sections


def test_no_evidence_is_lost() -> None:
    """What is new may be missing in the list, which `make docs` writes anew; what the list has may not go unseen."""
    text = LIST.read_text()
    kept = {part.partition(": ")[0]: part.splitlines()[1:] for part in text.removeprefix("# ").split("\n# ")}
    found = sections()
    assert {*kept} == {*found}
    assert {
        kind: lost for kind, names in kept.items() if (lost := {name for name in names if name} - {*found[kind]})
    } == {}
