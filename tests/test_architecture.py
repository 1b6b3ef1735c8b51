"""Rules of the house that no linter knows; import layers are import-linter's (pyproject.toml)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = (ROOT / "sparktxn", ROOT / "scala-free-python-datasource" / "pyspark_txnlog")
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))

MODULE_LINES_MAX = 1_000
FUNCTION_LINES_MAX = 70
SHORT_MODULE_LINES = 50
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager", "managers"}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def trees() -> dict[str, ast.Module]:
    """Return the modules' syntax trees, by name."""
    return {name_of(path): ast.parse(path.read_text()) for path in MODULES}


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Every class and function below `node`, with its dotted name; also those inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield prefix + child.name, child
            yield from definitions(child, f"{prefix}{child.name}.")
        else:
            yield from definitions(child, prefix)


def lines_without_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The function's length; its docstring does not count, so that words are not saved."""
    first = function.body[0]
    docstring = 0
    if ast.get_docstring(function) is not None:
        docstring = (first.end_lineno or first.lineno) - first.lineno + 1
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def test_there_are_modules_to_check() -> None:
    assert len(MODULES) > 20


def code_lines(source: str) -> int:
    """Count the lines with code: no blank line, no comment, and no text that stands alone, as docstrings do."""
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - texts)


def test_the_counts_of_modules_and_lines_are_printed() -> None:
    """`pytest -s` shows them: issues and commits say by how much they fall."""
    assert code_lines('"""Docstring."""\n\n# comment\nx = """\ntext\n"""  # why\n"""What x is."""\n') == 3
    lines = {path: code_lines(path.read_text()) for path in MODULES}
    imports = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    files = [path for path in MODULES if path.name != "__init__.py"]
    short = sum(len(path.read_text().splitlines()) < SHORT_MODULE_LINES for path in files)
    print(
        f"{len(files)} modules, {short} below {SHORT_MODULE_LINES} "
        f"lines, {sum(count == 1 for count in importers().values())} with one importer; "
        f"{sum(lines.values())} lines of code, {imports / sum(lines.values()):.1%} of them imports"
    )


def importers() -> Counter[str]:
    """By how many modules each one is imported, by its dotted name."""
    known = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for package in PACKAGES
        for path in package.rglob("*.py")
    }
    found: Counter[str] = Counter()
    for tree in trees().values():
        imported: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        found.update(imported & known)
    return found


def test_a_module_is_short() -> None:
    """A module without a function is a table, which may be as long as what it lists: a command is added to one."""
    lines = {name_of(path): len(path.read_text().splitlines()) for path in MODULES if "def " in path.read_text()}
    long = {name: count for name, count in lines.items() if count > MODULE_LINES_MAX}
    assert not long, "split them along what they know"


def test_functions_are_short() -> None:
    long = {
        f"{module} {name}": lines_without_docstring(node)
        for module, tree in trees().items()
        for name, node in definitions(tree)
        if not isinstance(node, ast.ClassDef) and lines_without_docstring(node) > FUNCTION_LINES_MAX
    }
    assert not long


def test_public_names_have_docstrings() -> None:
    silent = [
        f"{module} {name}"
        for module, tree in trees().items()
        for name, node in definitions(tree)
        if not any(part.startswith(("_", "test_")) for part in name.split("."))
        and ast.get_docstring(node) is None
        and not _is_inside_a_function(tree, node)
        and not _is_overload(node)
    ]
    assert not silent
    assert not [module for module, tree in trees().items() if ast.get_docstring(tree) is None]


def _is_inside_a_function(tree: ast.AST, node: Definition) -> bool:
    functions = (found for found in ast.walk(tree) if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(node is inner for function in functions for inner in ast.walk(function) if inner is not function)


def _is_overload(node: Definition) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "overload" for item in node.decorator_list)


def test_module_names_say_what_is_inside() -> None:
    vague = [name_of(path) for path in MODULES if {path.stem, path.parent.name} & VAGUE_NAMES]
    assert not vague


def test_every_stored_format_is_in_the_protocol() -> None:
    """A section of docs/PROTOCOL.md names the module that encodes the object, so that neither is changed alone."""
    headings = [line for line in (ROOT / "docs" / "PROTOCOL.md").read_text().splitlines() if line.startswith("##")]
    formats = sorted(
        path.stem for path in (ROOT / "sparktxn" / "_engine" / "format").glob("*.py") if path.stem != "__init__"
    )
    assert "entry" in formats
    missing = [name for name in formats if not any(f"`format/{name}.py`" in heading for heading in headings)]
    assert not missing


INTERNALS = "scala-free-python-datasource/pyspark_txnlog/sparkinternals.py"
PRIVATE_TO_SPARK = re.compile(
    r"\b_(?:sc|jvm|jdf|jsc|jc|jsparkSession|active_spark_context|getJavaStorageLevel)\b"
    r"|\borg\.apache\.|\bpy4j\b|\bpyspark\.sql\.(?:classic|worker)\b|\bsql\.streaming\.queryId|\bsql\.batchId"
    r"|\b_spark_metadata\b|\bfileStreamSink\b|\b_tmp_metadata_row_index\b|\b__CHAR_VARCHAR_TYPE_STRING\b"
)


def test_one_module_knows_what_is_inside_spark() -> None:
    connector = {name_of(path): path.read_text() for path in PACKAGES[1].rglob("*.py")}
    knowing = [name for name, text in connector.items() if PRIVATE_TO_SPARK.search(text)]
    assert knowing == [INTERNALS]


INTERNAL_TOPICS_SEAM = {
    "sparktxn/_engine/state/internal.py",
    "sparktxn/_engine/log/views/viewing.py",
    "sparktxn/_rows/scan/internalrows.py",
}
NAMES_OF_INTERNAL_TOPICS = {
    "CONSUMER_OFFSETS",
    "HALF_DISCARDED",
    "HALF_MESSAGES",
    "HALF_SETTLED",
    "HISTORY_TABLES",
    "HistoryView",
    "INTERNAL_TOPICS",
    "INTERNAL_TOPIC_IDS",
    "TRANSACTION_STATE",
    "internal_messages",
    "offset_for_time_in_history",
    "read_history",
    "refuse_change",
    "with_history",
}
PLACES_THAT_KNOW_INTERNAL_TOPICS = {
    "scala-free-python-datasource/pyspark_txnlog/reading/views.py _is_internal",
    "sparktxn/consumer/polling.py messages_of",
    "sparktxn/consumer/polling.py Reading._pass_over",
    "sparktxn/_engine/log/views/knownstate.py KnownState.changeable_topic",
    "sparktxn/_rows/scan/offsets.py offset_for_time",
    "sparktxn/_rows/scan/reader.py read",
    "sparktxn/_engine/state/topics.py check_new_name",
}
"""Functions outside the seam that treat internal topics apart. The fewer, the better: none is added.

A plain search finds the same ones: `git grep -nwE 'HistoryView|INTERNAL_TOPICS|…|with_history' -- '*.py'`, with all the
names above, and without the seam, imports and tests. A caller of `topic_named`, `topic_names`, `colliding_name`,
`partition_at` and `partition_exists` asks about all topics alike, and so does one of the methods of `PartitionView`.
"""


def uses(node: ast.AST, names: set[str], inside: str = "") -> Iterator[str]:
    """Yield the dotted names of the functions in which `names` stand, imports aside."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load) and child.id in names:
            yield inside
        below = f"{inside}.{child.name}".lstrip(".") if isinstance(child, Definition) else inside
        yield from uses(child, names, below)


def test_internal_topics_stand_behind_one_seam() -> None:
    known = {
        f"{module} {place}"
        for module, tree in trees().items()
        if module not in INTERNAL_TOPICS_SEAM
        for place in uses(tree, NAMES_OF_INTERNAL_TOPICS)
    }
    assert known == PLACES_THAT_KNOW_INTERNAL_TOPICS
    assert len(known) <= 10


NAMES_AND_IDS = {"str", "TopicNameText", "int", "Int64", "Natural", "Positive"}
NUMBERS = {"int", "Int64", "Natural", "NaturalOrNone"}
PAIRS_THAT_ARE_NO_PARTITIONS = {
    "scala-free-python-datasource/pyspark_txnlog/native/native_scan.py": "ranges of offsets",
    "sparktxn/consumer/heartbeats.py": "logs of this process",
    "sparktxn/_engine/log/views/viewing.py": "ranges of offsets",
    "sparktxn/_engine/log/views/readview.py": "ranges of offsets",
    "sparktxn/maintenance/checking/segmentcheck.py": "sequences by the producer's id and epoch",
    "sparktxn/maintenance/rewriting/rewriteplan.py": "ranges of offsets",
    "sparktxn/_rows/scan/aborted.py": "ranges of offsets",
    "sparktxn/_rows/scan/latesttask.py": "ranges of offsets",
    "sparktxn/_rows/scan/offsets.py": "ranges of offsets",
    "sparktxn/_rows/scan/plan.py": "ranges of offsets",
    "sparktxn/_rows/scan/storedfiles.py": "ranges of a file's rows",
    "sparktxn/_rows/scan/storedrecords.py": "ranges of a file's rows",
}
"""Modules that keep pairs of another kind: none of these keeps partitions by a bare pair, too."""


def is_bare_pair(node: ast.expr) -> bool:
    match node:
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)])):
            return first in NAMES_AND_IDS and second in NUMBERS
        case ast.BinOp(left=left, right=right):
            return is_bare_pair(left) or is_bare_pair(right)
    return False


def bare_pairs(tree: ast.Module) -> Iterator[str]:
    """Yield the types that may keep something by partition: collections of pairs, and pairs that are called one."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=of, slice=ast.Tuple(elts=[element, *others])):
                # The values of a mapping are not keys, and a tuple is a collection if it ends with dots.
                many = ast.unparse(of) != "tuple" or [ast.unparse(other) for other in others] == ["..."]
                found = [element] if many else []
            case ast.Subscript(slice=element):
                found = [element]
            case ast.FunctionDef(name=name, returns=annotation) | ast.arg(arg=name, annotation=annotation):
                found = [annotation] if annotation and re.search("partition|place|where", name) else []
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                found = [annotation] if re.search("partition|place|where", name) else []
            case _:
                continue
        yield from (ast.unparse(each) for each in found if is_bare_pair(each))


def test_the_test_of_bare_pairs_sees_what_it_is_for() -> None:
    found = """
a: dict[tuple[str, int], str]
b: list[tuple[int, int]] | None
c: dict[str, list[tuple[int, int]]]
d: tuple[tuple[Int64, Int64], ...] = ()
def e(places: Iterable[tuple[int, int]]): ...
def f(place: tuple[str, int]): ...
def partition_of(g) -> tuple[int, int] | None: ...
where: tuple[int, int]
"""
    assert len(list(bare_pairs(ast.parse(found)))) == len(found.split("\n")) - 2
    left = """
a: dict[str, tuple[str, int]]
b: tuple[int, tuple[int, int]]
c: list[tuple[bytes, int]]
d: list[tuple[str, str]]
def e(f: tuple[int, int]) -> tuple[int, int]: ...
"""
    assert not list(bare_pairs(ast.parse(left)))


def test_a_partition_has_one_name_by_its_topics_name_and_one_by_its_id() -> None:
    """`TopicPartitionKey` and `TopicIdPartition` of `values/fieldtypes.py`, wherever something is kept by partition."""
    found = {module: list(bare_pairs(tree)) for module, tree in trees().items()}
    found = {module: pairs for module, pairs in found.items() if pairs}
    assert {module: found[module] for module in found.keys() - PAIRS_THAT_ARE_NO_PARTITIONS.keys()} == {}
    assert PAIRS_THAT_ARE_NO_PARTITIONS.keys() <= found.keys()


def test_a_list_of_public_names_says_more_than_the_names_do() -> None:
    """A name without an underscore is public: `__all__` is for packages, doors, and what hands on names of others."""
    repeated = []
    for path in MODULES:
        tree = trees()[name_of(path)]
        defined = {name for node in tree.body for name in _names_of(node)}
        if path.name != "__init__.py" and path.stem not in LISTS_THAT_ARE_READ and "__dir__" not in defined:
            listed = [node.value for node in tree.body if "__all__" in _names_of(node) and isinstance(node, ast.Assign)]
            names = [
                name for value in listed for name in ast.walk(value) if isinstance(name, ast.Constant | ast.Starred)
            ]
            if names and all(isinstance(name, ast.Constant) and name.value in defined for name in names):
                repeated.append(name_of(path))
    assert repeated == []


def _names_of(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


LISTS_THAT_ARE_READ = {"aioclients"}
"""`compat` puts what they name in the place of confluent-kafka's."""


NAMES_USED_AGAIN_MAX = 25


def test_a_name_leads_to_one_file() -> None:
    """Of names that several files have, most are of packages that answer to the same thing, such as topics."""
    files = [path for path in MODULES if path.stem != "__init__"]
    again = {name: count for name, count in Counter(path.name for path in files).items() if count > 1}
    assert len(again) <= NAMES_USED_AGAIN_MAX, again


MIRRORS = {
    "AIOConsumer": "confluent-kafka's, in compat and of our own",
    "AIOProducer": "confluent-kafka's, in compat and of our own",
    "AdminClient": "confluent-kafka's, in compat and of our own",
    "Consumer": "confluent-kafka's, in compat and of our own",
    "DeserializingConsumer": "confluent-kafka's, in compat and of our own",
    "IllegalStateException": "confluent-kafka's and RocketMQ's",
    "Message": "confluent-kafka's, and those of RocketMQ's clients 4 and 5",
    "Producer": "confluent-kafka's, in compat and of our own, and that of RocketMQ's client 5",
    "ProducerState": "kafka.admin.ProducerState, and Kafka's ProducerStateEntry in the state",
    "SerializingProducer": "confluent-kafka's, in compat and of our own",
    "TransactionState": "kafka.admin.TransactionState, and Kafka's TransactionMetadata in the state",
}
"""Classes that mirror those of other APIs, whose names they keep."""


def test_a_class_has_a_name_of_its_own() -> None:
    """A reader who searches for a public class finds one, unless two other APIs have a class of that name."""
    places: dict[str, list[str]] = {}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    again = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert {name: again[name] for name in again.keys() - MIRRORS.keys()} == {}, "say by the name what differs"
    assert again.keys() == MIRRORS.keys()


SERVERS = (
    "sparktxn/admin/",
    "sparktxn/_programs/console/",
    "sparktxn/_programs/exporter.py",
    "sparktxn/store/storefigures.py",
    "sparktxn/store/storemetrics.py",
    "sparktxn/_programs/gateway/",
    "sparktxn/_programs/catalog/",
)
COMPILES = {"compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"}


def test_no_server_compiles_a_pattern_of_a_client() -> None:
    """Python's `re` backtracks and keeps the interpreter's lock; `admin/transactions.py` matches such patterns."""
    variable = [
        f"{module}:{node.lineno}"
        for module, tree in trees().items()
        if module.startswith(SERVERS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in COMPILES
        and not isinstance(node.args[0], ast.Constant)
    ]
    assert not variable
