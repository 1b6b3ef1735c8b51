"""Names of objects: many that are checked at once are judged as each by itself."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from sparktxn._engine.format import names
from sparktxn.errors import DamagedObject

PARTS = st.text(alphabet="a.0=_-/\n é", max_size=6)


def is_refused(check: object, argument: object) -> bool:
    try:
        check(argument, "a head")  # type: ignore[operator]
    except DamagedObject:
        return True
    return False


@given(st.lists(st.one_of(PARTS, st.just("_log/_checkpoints/1/0.json"), st.just("a" * 513)), max_size=4))
@example(["a", ""])
@example(["a/..", "b"])
@example(["a\nb"])
def test_many_names_at_once(found: list[str]) -> None:
    assert is_refused(names.check_names, found) == any(is_refused(names.checked_name, name) for name in found)
