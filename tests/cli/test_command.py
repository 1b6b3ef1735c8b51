"""What all verbs share: which store they are for, their errors, their exit codes, and secrets that stay secret."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import sparktxn
from sparktxn._engine.objectstore.local import LocalStore
from sparktxn._foundation.config.values import MILLISECONDS
from sparktxn._programs.cli import output
from sparktxn._programs.cli.failures import WrongUsage, printable, quantity, time_ms
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verbs import topics
from sparktxn.errors import ConfigurationError, extra_to_install
from tests.cli.terminal import ok, txnlog

SECRET = "hunter2-very-secret"


def profiles(folder: Path, text: str) -> None:
    (folder / "config" / "txnlog").mkdir(parents=True, exist_ok=True)
    (folder / "config" / "txnlog" / "profiles.toml").write_text(text)


class TestWhichStore:
    def names(self, *words: str) -> list[str]:
        return [row["topic"] for row in ok("topics", "list", "--json", *words).json]

    @pytest.fixture(autouse=True)
    def stores(self, folder: Path) -> None:
        for name in ("store", "a", "b"):
            ok("topics", "create", f"in-{name}", "--store", str(folder / name))
        profiles(folder, f'[default]\nstore = "{folder}/a"\n[other]\nstore = "{folder}/b"\n"store.fsync" = false\n')

    def test_the_option_comes_first(self, folder: Path) -> None:
        assert self.names("--store", str(folder / "b")) == ["in-b"]
        assert self.names("-b", str(folder / "b"), "--profile", "default") == ["in-b"]

    def test_it_may_stand_before_the_verb(self, folder: Path) -> None:
        done = ok("--store", str(folder / "b"), "--json", "topics", "list")
        assert [row["topic"] for row in done.json] == ["in-b"]

    def test_a_named_profile_comes_before_the_environment(self) -> None:
        assert self.names("--profile", "other") == ["in-b"]

    def test_the_environment_comes_before_the_default_profile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TXNLOG_PROFILE", "other")
        assert self.names() == ["in-store"]
        monkeypatch.delenv("TXNLOG_STORE")
        assert self.names() == ["in-b"]
        monkeypatch.delenv("TXNLOG_PROFILE")
        assert self.names() == ["in-a"]

    def test_a_file_of_settings_may_name_it(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "client.properties").write_text(f"# ours\nbootstrap.servers={folder}/b\n\nstore.fsync = false\n")
        assert self.names("--config", "client.properties") == ["in-store"]
        monkeypatch.delenv("TXNLOG_STORE")
        profiles(folder, "")
        assert self.names("--config", "client.properties") == ["in-b"]

    @pytest.mark.parametrize("way", ["option", "variable", "profile"])
    def test_a_tilde_is_the_users_folder(self, folder: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
        monkeypatch.setenv("HOME", str(folder))
        profiles(folder, '[default]\nstore = "~/b"\n')
        monkeypatch.delenv("TXNLOG_STORE")
        if way == "variable":
            monkeypatch.setenv("TXNLOG_STORE", "~/b")
        assert self.names(*(["--store=~/b"] if way == "option" else [])) == ["in-b"]
        (folder / "settings").write_text("store.fsync=false\n")
        assert self.names("--store=~/b", "--config=~/settings") == ["in-b"]

    def test_an_empty_address_is_not_that_of_another_way(self) -> None:
        done = txnlog("topics", "list", "--store", "")
        assert (done.code, done.err.startswith("txnlog: --store is '': expected an address")) == (2, True)

    def test_without_any_it_says_what_to_do(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TXNLOG_STORE")
        profiles(folder, "")
        done = txnlog("topics", "list")
        assert done.code == 2
        assert done.err.startswith("txnlog: no store is given: add --store ADDRESS, set TXNLOG_STORE, or write")


WRONG = [
    (("topics", "list", "--profile", "othr"), 2, "there is no profile 'othr' in "),
    (("topics", "list", "-X", "storekey"), 2, "--option takes name=value"),
    (("topics", "list", "-X", "store.fsinc=true"), 2, "store.fsinc"),
    (("topics", "list", "-F", "absent"), 2, "--config: cannot read file 'absent': No such file or directory"),
    (("topics", "list", "--store", "absent"), 1, "txnlog topics create NAME"),
    (("topics", "list", "--store", "nofs://x/y"), 2, "nofs"),
    (("topics", "list", "--store", "s3://user:pass@b/x"), 2, "storage.* settings"),
    (
        ("topics", "list", "--timeout", "soon"),
        2,
        "--timeout is 'soon': expected a whole number with its unit, such as 500ms, 30s",
    ),
    (("topics", "list", "--timeout", "5"), 2, "--timeout is '5': expected a whole number with its unit, such as"),
    (("topics", "list", "--timeout", "0s"), 2, "--timeout is '0s': expected 1 to 9007199254740992 milliseconds"),
    (("gateway", "--linger", "1m"), 2, "--linger is '1m': expected 0 to 10000 milliseconds"),
    (("topics", "list", "--frob"), 2, "--frob"),
    (("topics", "lst"), 2, "there is no verb 'lst'. Did you mean 'txnlog topics list'? txnlog topics --help lists"),
    (("bench",), 2, "there is no verb 'bench'. Did you mean 'txnlog doctor'?"),
    (("tpics",), 2, "there is no verb 'tpics'. Did you mean 'txnlog topics'? txnlog --help lists all verbs"),
    (("topics", "create"), 2, "TOPIC"),
    (("topics", "create", "a/b"), 2, "topic name 'a/b' is not valid"),
    (("topics", "create", "t", "--set", "segment.rows"), 2, "--set takes name=value"),
    (("topics", "create", "t", "--column", "id"), 2, "expected 'NAME TYPE' or 'NAME TYPE not null'"),
    (("topics", "describe", "absent"), 1, "txnlog topics list shows the topics"),
    (("topics", "alter", "t"), 2, "nothing to alter is given"),
]


@pytest.mark.parametrize(("words", "code", "expected"), WRONG, ids=lambda value: str(value)[:40])
def test_an_error_is_one_line_that_says_what_to_do(words: tuple[str, ...], code: int, expected: str) -> None:
    ok("topics", "create", "first")
    done = txnlog(*words)
    assert (done.code, done.text) == (code, "")
    assert expected in done.err
    assert done.err.startswith("txnlog: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("words", [("topics", "create", "a/b"), ("topics", "create", "t", "--column", "id int65")])
def test_what_is_wrong_is_refused_before_a_store_is_made(folder: Path, words: tuple[str, ...]) -> None:
    assert txnlog(*words).code in (1, 2)
    assert not (folder / "store").exists()


def test_the_trace_is_shown_when_asked_for() -> None:
    assert "Traceback" not in txnlog("topics", "list").err
    done = txnlog("topics", "list", "--debug")
    assert done.code == 1
    assert done.err.startswith("Traceback")
    assert done.err.splitlines()[-1].startswith("txnlog: there is no store at ")


def test_an_error_of_the_program_itself_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(session: Session) -> None:
        raise ZeroDivisionError("oh\nno")

    monkeypatch.setattr(Session, "store", broken)
    done = txnlog("topics", "list")
    assert done == (1, b"", "txnlog: ZeroDivisionError: oh no: run it again with --debug to see where\n")


READ_ONLY = "no permission to write to the store"


def cannot_write(*_: object, **__: object) -> None:
    raise ConfigurationError(f"{READ_ONLY} 'x' (Permission denied): give this process's user the permission")


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "create", "second"),
        ("topics", "delete", "first", "--apply"),
        ("produce", "-t", "first"),
        ("produce", "-t", "first", "--transactional-id", "t"),
        ("consume", "-t", "first", "-e", "-G", "g"),
        ("sweep", "--apply"),
        ("settings", "--set", "reject.transaction.message=true"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_a_store_that_may_only_be_read_is_one_line(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ok("topics", "create", "first")
    monkeypatch.setattr(LocalStore, "_prepare_folder", cannot_write)
    monkeypatch.setattr(LocalStore, "put_if_absent", cannot_write)
    done = txnlog(*words, stdin=b"record\n")
    assert (done.code in (1, 2), done.text) == (True, "")
    assert READ_ONLY in done.err
    assert caplog.records == [], "a trace would stand before the line"
    assert (done.err.count("\n"), done.err.startswith("txnlog: ")) == (1, True), done.err


def test_jobs_that_fail_have_not_found_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    ok("topics", "create", "first")
    monkeypatch.setattr(LocalStore, "put_if_absent", cannot_write)
    done = txnlog("maintain", "--apply")
    assert (done.code, done.text, "nothing to do" in done.err) == (1, "", False)
    assert "sweep has failed: no permission to write" in done.err


@pytest.mark.parametrize("debug", [False, True])
def test_what_the_package_logs_is_a_line_each(debug: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def logs(session: Session) -> None:
        try:
            raise ZeroDivisionError("oh\nno")
        except ZeroDivisionError:
            logging.getLogger("sparktxn.somewhere").exception("%s has failed", "a thread")
        raise WrongUsage("and so on")

    monkeypatch.setattr(Session, "store", logs)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    done = txnlog("topics", "list", *(["--debug"] if debug else []))
    assert "txnlog: error: a thread has failed: oh no\n" in done.err
    assert done.err.endswith("txnlog: and so on\n")
    assert ("Traceback" in done.err) == debug
    assert (done.err.count("\n") == 2) == (not debug)
    assert logging.getLogger("sparktxn").handlers == []


def test_ctrl_c_ends_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(session: Session) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "store", interrupted)
    assert txnlog("topics", "list") == (130, b"", "")


@pytest.mark.parametrize(
    "words",
    [
        ("-X", f"storage.secret={SECRET}"),
        ("-X", f"storage.secret={SECRET}", "--store", "s3://bucket/x", "-X", "storage.nothing=1"),
        ("-X", f"={SECRET}"),
        ("-X", SECRET),
        ("-F", "secrets"),
        ("-F", "no-pairs"),
        ("--profile", "secret"),
        ("--profile", "broken"),
    ],
)
def test_secrets_are_never_printed(folder: Path, words: tuple[str, ...]) -> None:
    (folder / "secrets").write_text(f"storage.secret={SECRET}\n")
    (folder / "no-pairs").write_text(f"{SECRET}\n")
    profiles(
        folder, f'[secret]\nstore="/nowhere"\n"storage.secret" = "{SECRET}"\n[broken]\nstorage.secret="{SECRET}"\n'
    )
    done = txnlog("topics", "list", *words, "--debug", "--timeout", "5s")
    assert done.code in (1, 2)
    assert SECRET not in done.text + done.err


def test_markup_and_control_characters_are_printed_literally(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"name": "[red]a[/red] :smile: \x1b[31m", "other": ["[b]", "\ud800"], "empty": ""}]
    output.Output(json=False).rows(rows, none="")
    output.Output(json=False).row(rows[0])
    out = capsys.readouterr().out
    assert out.count(r"[red]a[/red] :smile: \x1b[31m") == 2
    assert out.count(r"[b], \ud800") == 2
    assert "''" in out


def test_a_table_in_a_file_has_one_line_for_each_row() -> None:
    name = "n" * 240
    ok("topics", "create", name, "--set", "segment.rows=7", "--set", "compression.type=lz4")
    assert len(ok("topics", "list").lines) == 2


def test_times_and_durations_are_read_and_written() -> None:
    assert time_ms("--time", "1500", 0) == 1_500
    assert time_ms("--time", "15m", 1_000_000) == time_ms("--time", "-15 minutes", 1_000_000) == 100_000
    assert time_ms("--time", "1970-01-01T00:00:01.500Z", 0) == time_ms("--time", "1970-01-01T00:00:01.500", 0) == 1_500
    assert time_ms("--time", "1970-01-01T01:00:00+01:00", 0) == 0
    with pytest.raises(WrongUsage, match="--time is 'noon': expected milliseconds since 1970, a time such as"):
        time_ms("--time", "noon", 0)
    with pytest.raises(WrongUsage, match="--every is '30': expected a whole number with its unit, such as 500ms, 30s"):
        quantity("--every", "30", MILLISECONDS)
    assert quantity("--every", "30 s", MILLISECONDS) == 30_000
    assert printable("é\tß\n") == "é\\tß\\n"


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_packages_the_command_says_what_to_install(missing: str) -> None:
    program = (
        f"import sys; sys.modules['{missing}'] = None\nfrom sparktxn._programs.cli.launch import main; sys.exit(main())"
    )
    done = python(program)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"txnlog: the command needs Typer and Rich: {extra_to_install('cli')}\n"


def test_the_library_does_not_import_the_command() -> None:
    program = (
        "import sys, sparktxn, sparktxn.admin, sparktxn.maintenance; [getattr(sparktxn, name) for name in "
        "sparktxn.__all__]; sys.exit(any(name.split('.')[0] in ('typer', 'rich') for name in sys.modules))"
    )
    assert python(program).returncode == 0


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "sparktxn", "topics", "create", "t", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == '{"topic":"t","partition_count":1,"created":true}\n'
    assert topics.app.registered_commands


# What takes long to import: a verb that needs none of it starts at once.
HEAVY = {
    *("typer", "rich", "pydantic", "msgspec", "pyarrow", "numpy", "pandas", "fsspec", "asyncio"),
    *(f"sparktxn.{name}" for name in ("store", "admin", "consumer", "producer", "maintenance", "transfer", "tables")),
}


@pytest.mark.parametrize(
    ("words", "packages"),
    [
        (["--version"], []),
        (["--help"], ["typer", "rich", "msgspec"]),
        (["topics", "list"], ["typer", "rich", "msgspec", "pydantic", "pyarrow", "numpy", "sparktxn.store"]),
    ],
    ids=" ".join,
)
def test_a_verb_imports_only_what_it_needs(words: list[str], packages: list[str]) -> None:
    ok("topics", "create", "t")
    program = (
        f"import sys; sys.argv[1:] = {words}\nfrom sparktxn._programs.cli.launch import main\nassert main() == 0\n"
        "print('imported', *sys.modules)"
    )
    imported = set(python(program).stdout.splitlines()[-1].split())
    assert imported & HEAVY == {*packages}
    verbs = {name for name in imported if name.startswith("sparktxn._programs.cli.verbs.")}
    assert verbs == ({"sparktxn._programs.cli.verbs.topics"} if words[0] == "topics" else set())


def test_the_version_is_that_of_the_package() -> None:
    expected = f"txnlog {sparktxn.__version__}\n"
    assert ok("--version").text == ok("--store", "absent", "--version").text == expected
    command = [sys.executable, "-m", "sparktxn", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout == expected


def test_a_shell_completes_the_names_of_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TXNLOG_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "txnlog topics d")
    monkeypatch.setenv("COMP_CWORD", "2")
    command = [sys.executable, "-m", "sparktxn"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split() == ["describe", "delete"]
