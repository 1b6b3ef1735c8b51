"""The public names of confluent-kafka, as a table: `python -m tests.interop.confluentnames` writes it anew.

It needs confluent-kafka, which the suite does not: the table is kept, and a test of `make interop` compares it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from enum import Enum
from pathlib import Path
from typing import Any, Final

TABLE: Final = Path(__file__).with_name("confluent_kafka_2_16.json")

MODULES: Final = ("confluent_kafka", "confluent_kafka.admin", "confluent_kafka.error")
CLIENTS: Final = ("Producer", "Consumer", "Message", "TopicPartition", "Uuid", "KafkaError")
# Imports of confluent-kafka's own, which no program takes from there.
_NOT_PUBLIC: Final = {"Any", "Dict", "List", "Optional", "Set", "Tuple", "Union", "concurrent", "warnings", "os"}


def names_of(module: Any) -> dict[str, Any]:
    """Return what a module offers, each name with its kind: a number, an enumeration's members, or a word."""
    found: dict[str, Any] = {}
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or name in _NOT_PUBLIC or name == "string_type":
            continue
        if inspect.ismodule(value):
            continue
        if inspect.isclass(value) and issubclass(value, Enum):
            found[name] = {member: value[member].value for member in value.__members__}
        elif inspect.isclass(value):
            found[name] = "class"
        else:
            found[name] = value if isinstance(value, int) else "function"
    return found


def codes_of(kind: Any) -> dict[str, list[Any]]:
    """Return the codes of KafkaError by name, each with its text."""
    numbers = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("__")}
    return {name: [code, kind(code).str()] for name, code in sorted(numbers.items()) if isinstance(code, int)}


def keywords_of(function: Any) -> list[str] | None:
    """Return the names of a function's arguments, None if it does not say them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in parameters if one.kind in named and one.name not in ("self", "cls", "future")]


def methods_of_stub(path: Path) -> dict[str, dict[str, list[str]]]:
    """Return the methods of the classes that are written in C, with the names of their arguments, from the stub."""
    found: dict[str, dict[str, list[str]]] = {}
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.ClassDef) or node.name not in CLIENTS:
            continue
        methods: dict[str, list[str]] = {}
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and not (item.name.startswith("_") and item.name != "__init__"):
                names = [one.arg for one in (*item.args.args, *item.args.kwonlyargs) if one.arg not in ("self",)]
                methods[item.name] = sorted({*methods.get(item.name, []), *names})
        found[node.name] = methods
    return found


def table() -> dict[str, Any]:
    """Return the table of the package that is installed."""
    package = importlib.import_module("confluent_kafka")
    modules = {name: importlib.import_module(name) for name in MODULES}
    admin = modules["confluent_kafka.admin"]
    methods = methods_of_stub(Path(package.__file__ or "").with_name("cimpl.pyi"))
    documented = {"request_timeout", "validate_only", "operation_timeout", "include_authorized_operations"}
    methods["AdminClient"] = {
        name: sorted(set(keywords_of(value) or []) - documented)
        for name, value in vars(admin.AdminClient).items()
        if not name.startswith("_")
    }
    values = {}
    for module in modules.values():
        for name in names_of(module):
            kind = getattr(module, name)
            if inspect.isclass(kind) and not issubclass(kind, Enum | BaseException) and name not in methods:
                keywords = keywords_of(kind)
                if keywords:
                    values[name] = keywords
    return {
        "version": package.version(),
        "modules": {name: names_of(module) for name, module in modules.items()},
        "codes": codes_of(package.KafkaError),
        "methods": methods,
        "values": values,
    }


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(), indent=1, sort_keys=True) + "\n")
