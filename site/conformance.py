"""The site's page of Kafka's and RocketMQ's behaviours, and the tests that show them, found by their marks.

No test is run or imported: the marks ``@pytest.mark.kafka("K59", …)`` are read from the files' syntax trees. They stand
on tests, on classes, in ``pytest.param(…, marks=…)`` and in ``pytestmark``. site/stage.py writes the page.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.kafka_behaviours import SECTIONS, Behaviour
from tests.rocketmq_behaviours import ROCKETMQ_SECTIONS

ROOT = Path(__file__).parent.parent

INTRODUCTION = """\
# Kafka's transactions, behaviour by behaviour

What Kafka's transactions and groups do, in short words. *Here* says what is different in this store by its design, and
why. The last column names the tests that show it. Every transactional log needs the behaviours with a ★. A behaviour
without a test has its reason. `make test ARGS='-m "kafka and not nightly and not interop and not clouds"'` runs the
tests that are named here, without the long ones of `make nightly` and those of `make interop`.

Where nothing else is said, this is Kafka's classic protocol of transactions (`transaction.version` 0 and 1), and its
newer one of consumer groups (KIP-848). Names in brackets are those of Kafka's own tests.
"""

ROCKETMQ = """\
## RocketMQ's transactional messages

What RocketMQ's transactional messages do in versions 4 (R) and 5 (V), and what goes wrong there (issues of
apache/rocketmq).
*Here* says what is different in this store. `make test ARGS='-m rocketmq'` runs the tests that are named here.
"""

Marks = dict[str, list[str]]
"""The names of tests by a behaviour's number."""


_MARKS = ("kafka", "rocketmq")


def numbers_in(node: ast.AST) -> Iterator[str]:
    """The numbers that the `kafka` and `rocketmq` marks inside a piece of code name."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _MARKS:
            yield from (str(argument.value) for argument in call.args if isinstance(argument, ast.Constant))


def _assigned(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """Return what names mean, by plain assignments."""
    found = {}
    for statement in body:
        if isinstance(statement, ast.Assign):
            found |= {target.id: statement.value for target in statement.targets if isinstance(target, ast.Name)}
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            found[statement.target.id] = statement.value
    return found


def _tests_in(body: list[ast.stmt], prefix: str, tables: dict[str, ast.expr]) -> Iterator[tuple[str, str]]:
    """(number, name of a test or of all tests in a place) for each mark under `prefix`."""
    assigned = _assigned(body)
    if "pytestmark" in assigned:
        yield from ((number, prefix) for number in numbers_in(assigned["pytestmark"]))
    tables = {**tables, **assigned}
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            name = f"{prefix}::{statement.name}"
            yield from ((number, name) for decorator in statement.decorator_list for number in numbers_in(decorator))
            yield from _tests_in(statement.body, name, tables)
        elif isinstance(statement, ast.FunctionDef) and statement.name.startswith("test"):
            for decorator in statement.decorator_list:
                named = [node.id for node in ast.walk(decorator) if isinstance(node, ast.Name) and node.id in tables]
                for marked in (decorator, *(tables[table] for table in named)):
                    yield from ((number, f"{prefix}::{statement.name}") for number in numbers_in(marked))


def marks() -> Marks:
    """All marks of the tests, in the order of files and lines, each test once."""
    found: dict[str, dict[str, None]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text()
        if not any(f"mark.{kind}(" in text for kind in _MARKS):
            continue
        for number, name in _tests_in(ast.parse(text).body, file.relative_to(ROOT).as_posix(), {}):
            found.setdefault(number, {})[name] = None
    return {number: list(names) for number, names in found.items()}


def _row(behaviour: Behaviour, tests: list[str]) -> str:
    says, here = (text.replace("|", chr(92) + "|") for text in (behaviour.says, behaviour.here))
    star = " ★" if behaviour.must_have else ""
    shown = "<br>".join(f"`{name}`" for name in tests) or "–"
    return f"| {behaviour.number}{star} | {says} | {here} | {shown} |\n"


def document(found: Marks) -> str:
    """Return the whole document."""
    parts = []
    for introduction, sections in ((INTRODUCTION, SECTIONS), (ROCKETMQ, ROCKETMQ_SECTIONS)):
        parts.append(introduction)
        for title, behaviours in sections:
            rows = "".join(_row(behaviour, found.get(behaviour.number, [])) for behaviour in behaviours)
            parts.append(f"## {title}\n\n| | behaviour | here | shown by |\n| --- | --- | --- | --- |\n{rows}")
    return "\n".join(parts)
