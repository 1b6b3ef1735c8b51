"""What documents and docstrings say of the code, compared with the code."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.each import each
from tests.test_architecture import trees

ROOT = Path(__file__).parent.parent
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}


@functools.cache
def tracked() -> frozenset[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return frozenset(listed.stdout.split())


def is_there(name: str, where: str) -> bool:
    """Return whether a name with a folder leads somewhere from a folder above `where`; a bare one may be anywhere."""
    if "/" not in name:
        return any(path.rpartition("/")[2] == name for path in tracked())
    folders = [
        *(f"{folder}/" for folder in Path(where).parents),
        *("sparktxn/", "docs/", "tests/"),
        *(f"sparktxn/{room}/" for room in ("_foundation", "_engine", "_rows", "_kafka", "_programs")),
        *("scala-free-python-datasource/", "scala-free-python-datasource/pyspark_txnlog/"),
    ]
    return any(folder.removeprefix("./") + name in tracked() for folder in folders)


@each(sorted(path for path in tracked() if path.endswith((".md", ".py"))))
def test_modules_and_pages_that_are_named_exist(path: str) -> None:
    file = ROOT / path
    named = re.findall(r"`([\w./-]+\.(?:py|md))`", file.read_text()) if file.exists() else []
    assert [name for name in named if not is_there(name, path)] == []


def written_over() -> set[tuple[str, str]]:
    """Return (module, name of the object, as the code has it) of each call that puts over what may exist."""
    found = set()
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or "/objectstore/" in module:
                continue
            called = ast.unparse(node.func)
            if called.endswith(("objects.put", "replace_hint")):
                at = 1 if called == "replace_hint" else 0
                found.add((module.partition("sparktxn/")[2], ast.unparse(node.args[at])))
    return found


OVERWRITTEN = {
    ("_engine/log/keep/checkpointer.py", "names.LAST_CHECKPOINT"): "_log/_last_checkpoint.json",
    ("maintenance/copying/storecopy.py", "names.LAST_CHECKPOINT"): "_log/_last_checkpoint.json",
    ("maintenance/vacuuming/incrementallisting.py", "names.LAST_VACUUM"): "_log/_last_vacuum.json",
    ("consumer/heartbeats.py", "names.member_sign(life.group_id, life.member_id)"): "signs of life",
    ("maintenance/publishing/tablemetadata.py", "self._folder + delta.LAST_CHECKPOINT"): "_delta_log/_last_checkpoint",
    ("maintenance/publishing/tablemetadata.py", "self._folder + icebergnames.VERSION_HINT"): (
        "metadata/version-hint.text"
    ),
}
OF_THEIR_OWN = {
    ("_engine/log/write/intents.py", "name"),  # under a new name
    ("maintenance/checking/repair.py", "wanted.name"),  # over what is damaged
    ("_programs/cli/doctorstore.py", "name"),  # in a folder of its own
}


def test_no_other_object_is_overwritten_than_documents_say() -> None:
    assert written_over() - OF_THEIR_OWN == {*OVERWRITTEN}
    protocol = (ROOT / "docs" / "PROTOCOL.md").read_text().split("ever overwritten:")[1].split("\n\n")[0]
    operations = (ROOT / "docs" / "operations.md").read_text().split("**Permissions**")[1].split("\n* ")[0]
    for name in OVERWRITTEN.values():
        assert name in protocol
        assert name in operations


def test_the_connector_imports_no_private_room() -> None:
    """Whether it is imported by a statement or by a name in a text, which import-linter does not see."""
    private = sorted(path.name for path in (ROOT / "sparktxn").glob("_[a-z]*"))
    assert CONTRACTS["connector"]["forbidden_modules"] == [f"sparktxn.{room}" for room in private]
    connector = {name: tree for name, tree in trees().items() if "pyspark_txnlog" in name}
    inside = re.compile(r"sparktxn\._[a-z]")
    assert [name for name, tree in connector.items() if inside.search(ast.unparse(tree))] == []


def imports_of(tree: ast.AST) -> set[str]:
    return {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_one_module_outside_of_the_command_starts_it() -> None:
    starters = [
        module
        for module, tree in trees().items()
        if not module.startswith("sparktxn/_programs/cli/")
        and any(name.split(".")[:3] == ["sparktxn", "_programs", "cli"] for name in imports_of(tree))
    ]
    assert starters == ["sparktxn/__main__.py"]


def test_the_package_registers_what_the_architecture_says() -> None:
    source = trees()["sparktxn/__init__.py"]
    (start,) = (node for node in ast.walk(source) if isinstance(node, ast.FunctionDef) and node.name.endswith("_jobs"))
    (module,) = imports_of(start)
    registered = module.replace(".", "/").removeprefix("sparktxn/")
    assert f"`sparktxn/__init__.py`, registers the jobs of\n`{registered}.py`" in ARCHITECTURE


def test_no_packages_at_the_root_import_each_other() -> None:
    assert [layer for layer in CONTRACTS["layers"]["layers"] if ":" in layer] == []


def test_one_place_puts_entries() -> None:
    def puts_entries(tree: ast.AST) -> bool:
        text = ast.unparse(tree)
        return "put_if_absent(" in text and re.search(r"\bnames\.entry\(", text) is not None

    assert [module for module, tree in trees().items() if puts_entries(tree)] == [
        "sparktxn/_engine/log/write/slotrace.py"
    ]


def test_the_list_of_folders_of_tests_is_whole() -> None:
    listed = re.findall(r"^\| `(\w+)/` \|", (ROOT / "tests" / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({path.split("/")[1] for path in tracked() if re.match(r"tests/\w+/.*\.py$", path)})


@each(sorted(path for path in tracked() if re.fullmatch(r"(?:docs/)?\w[\w-]*\.md", path)))
def test_no_page_installs_what_no_index_has(page: str) -> None:
    text = (ROOT / page).read_text()
    assert re.findall(r"pip install [^\n]*?'?\bsparktxn(?:\[|=|'|\s|$)", text, re.MULTILINE) == []


def test_subjects_of_commits_have_at_most_72_characters() -> None:
    log = subprocess.run(["git", "log", "-100", "--no-merges", "--format=%s"], cwd=ROOT, capture_output=True, text=True)
    if log.returncode:
        pytest.skip("not a clone")
    assert [subject for subject in log.stdout.splitlines() if len(subject) > 72] == []
