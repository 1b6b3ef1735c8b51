"""Every public method, every parameter, every hostile value: the cases, and what each must leave behind."""

from __future__ import annotations

import contextlib
import inspect
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec
import pyarrow as pa

from sparktxn import ConfigurationError, DamagedObject, KafkaException, StagedSegment, TopicPartition
from sparktxn._foundation.config.maintenance import SWEEP_SETTINGS, VACUUM_SETTINGS
from sparktxn._foundation.config.store import STORE_SETTINGS
from sparktxn._foundation.config.topic import TOPIC_SETTINGS
from sparktxn._kafka.settings.consumer import CONSUMER_SETTINGS
from sparktxn._kafka.settings.producer import PRODUCER_SETTINGS
from sparktxn.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.edge.calls import CALLS, MODULES, PREFIXES, REJECTS, checked_classes, hostile_messages, name_of
from tests.edge.values import HOSTILE, OPTION_TEXTS, PARTITIONS
from tests.edge.world import World

__all__ = ["Case", "Finding", "all_cases", "run_cases"]

CALL_S_MAX: Final = 30
ERROR_CHARACTERS_MAX: Final = 5_000

# A setting's or a record's place in what was given is named, not the argument.
_ALSO_NAMED: Final = {
    "batch": ("column", "batch"),
    "config": ("setting", "config", "option", "store URI", "No such configuration property", "must be configured"),
    **dict.fromkeys(
        ("producer_conf", "consumer_conf"),
        ("setting", "option", "store URI", "No such configuration property", "must be configured"),
    ),
    "store": ("setting", "No such configuration property", "must be configured"),
    "options": ("setting", "option", "storage."),
    "source_options": ("setting", "option", "storage."),
    "target_options": ("setting", "option", "storage."),
    "settings": ("setting", "settings", "No such configuration property"),
    "headers": ("header",),
    "messages": ("messages",),
    "schema": ("column", "type", "schema"),
    "topics": ("topic",),
    "topic": ("topic",),
    "source_topic": ("topic",),
    "name": ("topic", "name"),
    "uri": ("URI", "uri"),
    "target_uri": ("URI", "uri", "target"),
    "files": ("file",),
    "callback": ("callback",),
    "columns": ("column",),
    "default_topic": ("topic",),
    "staged": ("staged", "segment"),
    "restype": ("restype",),
    "timestamp_ms": ("timestamp",),
    "text": ("prepared transaction", "text"),
    "topic_schema": ("column", "schema", "type"),
}


class Case(NamedTuple):
    """One call with one argument replaced: `value` names it, `make` makes it in a world."""

    call: str
    parameter: str
    value: str
    make: Callable[[World, dict[str, Any]], Any]

    def __str__(self) -> str:
        return f"{self.call}({self.parameter}={self.value})"


class Finding(NamedTuple):
    """What a case has shown."""

    case: str
    what: str


class _Calls:
    """How many calls were made: a case whose value cannot even be made, or that changes nothing, makes none."""

    made = 0


def all_cases() -> Iterator[Case]:
    """Every case, in a fixed order."""
    for name in CALLS:
        yield Case(name, "", "as it is", lambda _world, _given: None)
        for parameter in _parameters(name):
            yield from _of_parameter(name, parameter)
    yield from _settings()
    yield from _settings_of_the_store()


def _parameters(name: str) -> list[str]:
    given = inspect.signature(_function(name)).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter.name for parameter in given if parameter.kind in kinds and parameter.name != "self"]


def _function(name: str) -> Callable[..., Any]:
    name = name.partition(" ")[0]
    prefix = next((prefix for prefix in PREFIXES.values() if name.startswith(prefix)), "")
    head, _, method = name.removeprefix(prefix).partition(".")
    modules = [module for module in MODULES if PREFIXES.get(module.__name__, "") == prefix]
    found = next(getattr(module, head) for module in modules if head in module.__all__)
    return getattr(found, method) if method else found


_Value = Callable[[World, dict[str, Any]], Any]
_Make = Callable[[], Any]


def _alone(make: _Make) -> _Value:
    return lambda _world, _given: make()


def _same(value: object) -> object:
    return value


def _within(make: _Make, parameter: str) -> _Value:
    return lambda _world, given: _inside(given, make, parameter)


def _placed(make: _Make, parameter: str) -> _Value:
    return lambda _world, given: _partition_in(given.get(parameter), make())


def _with_field(make: _Make, field: str) -> _Value:
    return lambda _world, given: [msgspec.structs.replace(given["staged"][0], **{field: make()})]


def _with_setting(make: _Make, parameter: str, name: str) -> _Value:
    return lambda _world, given: {**given[parameter], name: make()}


def _with_change(make: _Make, name: str) -> _Value:
    return lambda world, _given: [_change(world, name, make())]


def _of_parameter(name: str, parameter: str) -> Iterator[Case]:
    for value, make in HOSTILE.items():
        yield Case(name, parameter, value, _alone(make))
        # Inside of what is expected: a list's item, a dict's value.
        yield Case(name, parameter, f"[{value}]", _within(make, parameter))
    if "partition" in parameter or parameter in ("offsets", "positions"):
        for value, make in PARTITIONS.items():
            yield Case(name, parameter, value, _placed(make, parameter))
    if parameter == "message":
        for value, message in hostile_messages():
            yield Case(name, parameter, f"message of {value}", _alone(partial(_same, message)))
    if parameter == "staged":
        for field in StagedSegment.__struct_fields__:
            for value, make in HOSTILE.items():
                yield Case(
                    name,
                    parameter,
                    f"{field} {value}",
                    _with_field(make, field),
                )


class _Same(Exception):
    """The argument has no inside: the case is the call as it is."""


def _inside(given: Mapping[str, Any], make: Callable[[], Any], parameter: str) -> Any:
    plain = given.get(parameter)
    if isinstance(plain, list):
        if plain and isinstance(plain[0], dict):
            return [{**plain[0], "value": make()}, {**plain[0], "partition": make()}, {**plain[0], "headers": make()}]
        if plain and isinstance(plain[0], tuple):
            return [(plain[0][0], make()), (make(), plain[0][1])]
        return [*plain, make()]
    if isinstance(plain, dict) and plain:
        return {key: make() for key in plain}
    raise _Same


def _partition_in(plain: Any, partition: TopicPartition) -> Any:
    if isinstance(plain, list):
        return [partition]
    if isinstance(plain, dict):
        return dict.fromkeys([partition], next(iter(plain.values())))
    return partition


def _settings() -> Iterator[Case]:
    """Each setting of each client, and of maintenance and topics."""
    tables = {
        "Producer": ("config", (*PRODUCER_SETTINGS, *STORE_SETTINGS)),
        "Consumer": ("config", (*CONSUMER_SETTINGS, *STORE_SETTINGS)),
        "AdminClient": ("config", STORE_SETTINGS),
        "Store.open": ("options", STORE_SETTINGS),
        "Store.create_topic": ("settings", TOPIC_SETTINGS),
        "sweep": ("settings", SWEEP_SETTINGS),
        "Sweeper": ("settings", SWEEP_SETTINGS),
        "vacuum": ("settings", VACUUM_SETTINGS),
    }
    for name, (parameter, table) in tables.items():
        for setting in table:
            for value, make in HOSTILE.items():
                yield Case(
                    name,
                    parameter,
                    f"{setting.name}: {value}",
                    _with_setting(make, parameter, setting.name),
                )
    for setting in TOPIC_SETTINGS:
        for value, make in HOSTILE.items():
            yield Case(
                "AdminClient.incremental_alter_configs",
                "resources",
                f"{setting.name}: {value}",
                _with_change(make, setting.name),
            )


def _change(world: World, name: str, value: Any) -> ConfigResource:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    return ConfigResource("TOPIC", world.topic(), incremental_configs=[entry])


def _settings_of_the_store() -> Iterator[Case]:
    """What a resource names, and what is to be changed of it: each is replaced by each hostile value."""
    for name, text in (
        ("text", REJECTS),
        ("topic's setting", "retention.ms"),
        ("broker's", "log.retention.ms"),
        *_NODES,
    ):
        yield from _of_the_store(name, partial(_same, text))
    for name, make in HOSTILE.items():
        yield from _of_the_store(name, make)


def _of_the_store(value: str, make: _Make) -> Iterator[Case]:
    for call, part, resource in _STORE_RESOURCES:
        yield Case(f"AdminClient.{call} of the store", "resources", f"{part} {value}", _resource(resource, make))


def _resource(resource: Callable[[Any], ConfigResource], make: _Make) -> _Value:
    return lambda _world, _given: [resource(make())]


def _entry(name: Any = REJECTS, value: Any = "true", operation: Any = AlterConfigOpType.SET) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def _assigned(resource: ConfigResource, attribute: str, value: Any) -> ConfigResource:
    setattr(resource, attribute, value)
    return resource


def _appended(resource: ConfigResource, value: Any) -> ConfigResource:
    resource.incremental_configs.append(value)
    return resource


def _set(resource: ConfigResource, name: Any, value: Any) -> ConfigResource:
    resource.set_config(name, value)
    return resource


def _put(resource: ConfigResource, value: Any) -> ConfigResource:
    resource.set_config_dict[value if isinstance(value, str) else "x"] = value
    return resource


def _store(name: Any = "0", **changes: Any) -> ConfigResource:
    return ConfigResource("BROKER", name, **changes)


_NODES: Final = (
    ("node 1", "1"),
    ("node 00", "00"),
    ("node -1", "-1"),
    ("node ٠", "٠"),
    ("two nodes", "0,1"),
    ("wide", "x" * 30_000),
)

_STORE_RESOURCES: Final[tuple[tuple[str, str, Callable[[Any], ConfigResource]], ...]] = (
    ("describe_configs", "type", lambda value: ConfigResource(value, "0")),
    ("describe_configs", "name", _store),
    ("incremental_alter_configs", "name", lambda value: _store(value, incremental_configs=[_entry()])),
    ("incremental_alter_configs", "setting", lambda value: _store(incremental_configs=[_entry(value)])),
    (
        "incremental_alter_configs",
        "removed",
        lambda value: _store(incremental_configs=[_entry(value, None, AlterConfigOpType.DELETE)]),
    ),
    ("incremental_alter_configs", "value", lambda value: _store(incremental_configs=[_entry(REJECTS, value)])),
    ("incremental_alter_configs", "operation", lambda value: _store(incremental_configs=[_entry(operation=value)])),
    (
        "incremental_alter_configs",
        "second",
        lambda value: _store(incremental_configs=[_entry(), _entry(REJECTS, value)]),
    ),
    ("incremental_alter_configs", "entries", lambda value: _assigned(_store(), "incremental_configs", value)),
    ("incremental_alter_configs", "appended", lambda value: _appended(_store(incremental_configs=[_entry()]), value)),
    ("alter_configs", "name", lambda value: _store(value, set_config={REJECTS: "true"})),
    ("alter_configs", "set_config", lambda value: _store(set_config=value)),
    ("alter_configs", "dict", lambda value: _assigned(_store(), "set_config_dict", value)),
    ("alter_configs", "setting", lambda value: _set(_store(set_config={REJECTS: "true"}), value, "true")),
    ("alter_configs", "value", lambda value: _store(set_config={REJECTS: value})),
    ("alter_configs", "put", lambda value: _put(_store(set_config={REJECTS: "true"}), value)),
)
"""The calls, what is replaced, and the resource with it."""


def run_cases(cases: list[Case]) -> tuple[int, list[Finding]]:
    """Run the cases, those of one call in one world; (how many calls were made, what they have found)."""
    found: list[Finding] = []
    before = _Calls.made
    by_call: dict[str, list[Case]] = {}
    for case in cases:
        by_call.setdefault(case.call, []).append(case)
    for some in by_call.values():
        while some:
            with tempfile.TemporaryDirectory(prefix="edge-", ignore_cleanup_errors=True) as folder:
                # Relative paths, and those two folders up, are inside of it: calls that write files may take them.
                inner = Path(folder) / "up" / "here"
                inner.mkdir(parents=True)
                with contextlib.chdir(inner):
                    count = _run_in_world(some, Path(folder) / "store", found)
            some = some[count:]
    return _Calls.made - before, found


def _run_in_world(cases: list[Case], folder: Path, found: list[Finding]) -> int:
    """How many cases were run before one has spoilt the world."""
    world = World(folder)
    try:
        for number, case in enumerate(cases, 1):
            problems = list(_problems(world, case))
            found += [Finding(str(case), problem) for problem in problems]
            if problems:
                return number
        try:
            world.finish()
        except BaseException as error:
            found.append(Finding(f"all of {cases[0].call}", f"afterwards: {_told(error)}"))
        return len(cases)
    finally:
        try:
            world.close()
        except Exception as error:
            if not found:
                found.append(Finding(str(cases[0]), f"the clients cannot be closed: {_told(error)}"))


def _problems(world: World, case: Case) -> Iterator[str]:
    call = CALLS[case.call]
    given = call.arguments(world)
    try:
        wrong = case.make(world, given)
    except _Same:
        world.close_clients()
        return
    except BaseException as error:
        # A value that is checked when it is made cannot be passed.
        yield from _wrong_error(case, error)
        return
    target = call.target(world)
    _Calls.made += 1
    alarm = threading.Timer(CALL_S_MAX, _too_long, [str(case)])
    alarm.daemon = True
    alarm.start()
    entry = world.store.log.entry
    try:
        if case.parameter:
            given[case.parameter] = wrong
        _results(target(**given))
    except BaseException as error:
        if "alter_configs" in case.call and world.store.log.entry != entry:
            yield "it is refused, and an entry is written"
        if not case.parameter:
            yield f"the valid call raises {_told(error)}"
        yield from _wrong_error(case, error)
    finally:
        alarm.cancel()
    try:
        world.close_clients()
    except BaseException as error:
        yield f"its client cannot abort or close: {_told(error)}"
    try:
        world.check()
    except BaseException as error:
        yield f"afterwards: {_told(error)}"


def _too_long(case: str) -> None:
    import faulthandler

    print(f"{case} has taken {CALL_S_MAX} s", flush=True)
    faulthandler.dump_traceback()


def _results(answer: Any) -> None:
    """Ask every future of an answer."""
    futures = answer.values() if isinstance(answer, dict) else [answer]
    for future in futures:
        if isinstance(future, Future):
            future.result(timeout=CALL_S_MAX)


def _wrong_error(case: Case, error: BaseException) -> Iterator[str]:
    """An error of another kind, or one whose text does not name what was wrong."""
    allowed = isinstance(error, TypeError | ValueError | KafkaException | BufferError)
    refused = isinstance(error, UnicodeError | DamagedObject | pa.ArrowException | msgspec.MsgspecError)
    if not allowed or refused or type(error).__module__ == "numpy":
        yield f"raises {_told(error)}"
        return
    text = str(error)
    if len(text) > ERROR_CHARACTERS_MAX:
        yield f"its error has {len(text)} characters: {text[:100]}"
    if isinstance(error, KafkaException) and not isinstance(error, ValueError):
        return  # a refusal of the store, by Kafka's codes
    names = (case.parameter, *_ALSO_NAMED.get(case.parameter, ()), *_fields_of(case))
    if not any(name in text for name in names):
        yield f"its error does not name {case.parameter!r}: {text[:200]}"


def _fields_of(case: Case) -> tuple[str, ...]:
    """Attributes of values that a call checks one by one."""
    if "partition" in case.parameter or case.parameter in ("offsets", "positions", "message"):
        return ("topic", "partition", "offset", "metadata", "leader_epoch")
    if case.parameter == "staged":
        return StagedSegment.__struct_fields__
    if case.parameter == "messages":
        return ("value", "partition", "header")
    if case.parameter == "resources":
        return ("name", "setting", "restype", "incremental_configs", "set_config", "incremental_operation")
    return ()


def _told(error: BaseException) -> str:
    where = "".join(traceback.format_tb(error.__traceback__)[-1:]).strip()
    return f"{type(error).__module__}.{type(error).__name__}: {str(error)[:300]} ({where[:300]})"


def attribute_findings() -> Iterator[Finding]:
    """Each checked attribute of each public class is set to each hostile value: refused, or a plain value."""
    for kind in checked_classes():
        for name in vars(kind)["_checks"]:
            for value, make in HOSTILE.items():
                owner = CALLS[name_of(kind)].arguments(None)  # type: ignore[arg-type]
                made = kind(**owner)
                try:
                    setattr(made, name, make())
                except (TypeError, ValueError) as error:
                    if name not in str(error) or isinstance(error, UnicodeError):
                        yield Finding(f"{kind.__name__}.{name} = {value}", f"raises {_told(error)}")
                    continue
                except BaseException as error:
                    yield Finding(f"{kind.__name__}.{name} = {value}", f"raises {_told(error)}")
                    continue
                found = getattr(made, name)
                if type(found) not in (int, str, bool, type(None), bytes, dict, list, tuple) and not isinstance(
                    found, Enum
                ):
                    yield Finding(f"{kind.__name__}.{name} = {value}", f"holds a {type(found).__name__}")


def option_findings() -> Iterator[Finding]:
    """Each option of Spark's source, in each of its uses, has each hostile text: refused by its name, or usable."""
    from pyspark_txnlog.options.options import OPTIONS, READ, READ_STREAM, ReadOptions, WriteOptions

    for option in OPTIONS:
        for use in sorted(option.uses):
            for text in OPTION_TEXTS:
                case = f"{use} with {option.name}={text[:40]!r}"
                given: dict[str, str] = {"path": "/s"}
                if use in (READ, READ_STREAM):
                    given |= {} if option.name in ("subscribe", "assign", "topic") else {"subscribe": "t"}
                elif option.name in ("txnAppId", "txnVersion"):
                    given |= {"txnAppId": "a", "txnVersion": "1"}
                elif option.name == "createTopic":
                    given |= {"topic": "t"}
                given[option.name] = text
                try:
                    parsed: object = (
                        ReadOptions.parse(given, cast(Any, use))
                        if use in (READ, READ_STREAM)
                        else WriteOptions.parse(given, cast(Any, use))
                    )
                    repr(parsed)
                except (ConfigurationError, TypeError) as error:
                    if option.name not in str(error) or isinstance(error, UnicodeError):
                        yield Finding(case, f"its error does not name the option: {_told(error)}")
                except BaseException as error:
                    yield Finding(case, f"raises {_told(error)}")
                else:
                    yield from _far_numbers(case, parsed)


def _far_numbers(case: str, parsed: Any) -> Iterator[Finding]:
    """Numbers that a log cannot hold."""
    for name in parsed.__struct_fields__:
        value = getattr(parsed, name)
        numbers = [value] if isinstance(value, int) else _numbers_in(value) if isinstance(value, dict) else []
        if any(type(number) not in (int, bool) or not -2 <= number < 2**63 for number in numbers):
            yield Finding(case, f"{name} is {value!r}")


def _numbers_in(value: Mapping[Any, Any]) -> list[Any]:
    found: list[Any] = []
    for inner in value.values():
        if isinstance(inner, dict):
            found += [*inner, *inner.values()]
        elif isinstance(inner, tuple):
            found += inner
    return found
