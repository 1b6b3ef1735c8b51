"""The runner of a night: what is green, red, out of time, interrupted, resumed and summed up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.nightly import groups
from tests.nightly.__main__ import main
from tests.nightly.groups import GROUPS, NIGHT_S, ON_CLOUDS, Group
from tests.nightly.runner import AlreadyRunning, end, locked

ROOT = Path(__file__).parents[2]
GOOD = Group("good", 60, ("-c", "import os; print(os.environ['SPARKTXN_SEED'], {seed})"))
BAD = Group("bad", 60, ("-c", "raise SystemExit(3)"))
WAITS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session={apart})
open("{folder}/child.new", "w").write(str(child.pid))
import os; os.rename("{folder}/child.new", "{folder}/child")
time.sleep(600)
"""


def wait_for(condition) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one whose parent has not waited for it has ended, too."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip()[:1] in ("", "Z")


def test_all_green_is_success_and_every_group_has_the_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7"], [GOOD], tmp_path) == 0
    assert (tmp_path / "7" / "good" / "log.txt").read_text() == "7 7\n"
    printed = capsys.readouterr().out
    assert printed.startswith("seed 7\n")
    assert (tmp_path / "7" / "summary.txt").read_text() in printed


def test_a_red_group_fails_the_night_and_the_others_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7"], [BAD, GOOD], tmp_path) == 1
    printed = capsys.readouterr().out
    assert "make nightly ARGS='--seed 7 --only bad'" in printed
    assert "good: at most 60 s ... green" in printed


def test_a_group_that_is_out_of_time_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7"], [Group("slow", 0.1, ("-c", "import time; time.sleep(600)"))], tmp_path) == 1
    assert "slow: at most 0 s ... out of time" in capsys.readouterr().out


@pytest.mark.parametrize("apart", [False, True], ids=["in its group", "in a session of its own"])
def test_a_group_that_ignores_an_interrupt_ends_with_its_children(tmp_path: Path, apart: bool) -> None:
    script = WAITS.format(folder=tmp_path, apart=apart)
    deaf = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{script}"
    process = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
    wait_for((tmp_path / "child").exists)
    end(process, grace_s=0.1)
    assert process.returncode == -signal.SIGKILL
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: is_gone(child))


def test_what_is_green_is_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7"], [GOOD, BAD], tmp_path) == 1
    repaired = BAD._replace(arguments=GOOD.arguments)
    capsys.readouterr()
    assert main(["--resume"], [GOOD, repaired], tmp_path) == 0
    printed = capsys.readouterr().out
    assert "good: green before" in printed
    assert "bad: green before" not in printed
    assert main(["--seed", "7", "--only", "good"], [GOOD, repaired], tmp_path) == 0
    assert "good: green before" not in capsys.readouterr().out


def test_without_a_night_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert main(["--resume"], [GOOD], tmp_path) == 1


RUNNER = """
import sys
from pathlib import Path
from tests.nightly.__main__ import main, take_signals
from tests.nightly.groups import Group

take_signals()
sys.exit(main(["--seed", "7"], [Group("slow", 600, ("-c", sys.argv[1]))], Path(sys.argv[2])))
"""


def start_runner(output: Path) -> tuple[subprocess.Popen[str], int]:
    """Return a runner whose group is under way, and the child of that group."""
    command = [sys.executable, "-c", RUNNER, WAITS.replace("{apart}", "True"), str(output)]
    runner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    child = output / "7" / "slow" / "child"
    wait_for(child.exists)
    return runner, int(child.read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_interrupt_ends_the_group_and_says_how_to_go_on(tmp_path: Path, number: int) -> None:
    runner, child = start_runner(tmp_path)
    runner.send_signal(number)
    printed, _ = runner.communicate(timeout=100)
    assert runner.returncode == 130
    assert "to go on: make nightly ARGS='--seed 7'" in printed
    wait_for(lambda: is_gone(child))


def test_the_group_of_a_runner_that_was_killed_is_ended_by_the_next(tmp_path: Path) -> None:
    runner, child = start_runner(tmp_path)
    with pytest.raises(AlreadyRunning), locked(tmp_path / "7"):
        pass
    runner.kill()
    runner.communicate()
    assert not is_gone(child)
    assert main(["--seed", "7"], [GOOD._replace(name="slow")], tmp_path) == 0
    wait_for(lambda: is_gone(child))


FAILING = """
import pytest

class TestIt:
    @pytest.mark.parametrize("x", [1, 2])
    def test_number(self, x):
        assert x == 1

@pytest.mark.skip
def test_other(): pass
"""


def of_tests(folder: Path) -> Group:
    """Return a group that runs the tests in `folder` as the groups of pytest do."""
    own = ("-q", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", "-o", "junit_family=xunit1")
    return Group("red", 60, ("-m", "pytest", *own, "--junitxml={folder}/junit.xml", str(folder)))


def test_a_failing_test_is_named_with_the_command_that_replays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_it.py").write_text(FAILING)
    assert main(["--seed", "7"], [of_tests(tmp_path)], tmp_path / "output") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines if line.startswith("red  ")] == [["red", "1", "1", "1"]]
    variables = "SPARKTXN_SEED=7 PYTHONHASHSEED=7"
    replay = f"""{variables} make test ARGS="-m '' --hypothesis-seed=7 'test_it.py::TestIt::test_number[2]'\""""
    assert f"    {replay}" in lines
    assert any(line.endswith("s  test_it.py::TestIt::test_number[1]") for line in lines)


def test_a_test_that_was_interrupted_has_not_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_it.py").write_text("def test_one(): pass\ndef test_two(): raise KeyboardInterrupt\n")
    assert main(["--seed", "7"], [of_tests(tmp_path)], tmp_path / "output") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines if line.startswith("red  ")] == [["red", "1", "0"]]


def test_what_a_machine_lacks_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(groups, "_has", lambda need: False)
    assert main([], [GOOD, BAD._replace(needs=("java", "weed"))], tmp_path) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [groups.FIXES["java"], groups.FIXES["weed"]]
    assert not list(tmp_path.iterdir())


PAIR = """
import time
from pathlib import Path
import pytest

FOLDER = Path(__file__).parent

@pytest.mark.parametrize("number", range(4))
def test_other_runs_too(number):
    (FOLDER / f"began-{number}").touch()
    deadline_s = time.monotonic() + 30
    while len(list(FOLDER.glob("began-*"))) < 2:
        assert time.monotonic() < deadline_s, "no other test of this file runs"
        time.sleep(0.01)
"""


def test_tests_of_one_file_run_in_pairs(tmp_path: Path) -> None:
    """The group of kills has one file, whose tests take minutes each."""
    (kills,) = (group for group in GROUPS if group.name == "kills")
    pair = kills.arguments[kills.arguments.index("-n") : kills.arguments.index("tests/kills")]
    tests = tmp_path / "test_pair.py"
    tests.write_text(PAIR)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        *pair,
        str(tests),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_a_night_ends_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(group.limit_s for group in GROUPS) <= NIGHT_S - 600
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len({group.name for group in GROUPS}) == len(GROUPS)


def test_every_test_on_an_emulator_of_a_cloud_has_a_group() -> None:
    marked = [path for path in (ROOT / "tests").rglob("*.py") if "pytest.mark." + "clouds" in path.read_text()]
    folders = {str(path.relative_to(ROOT).parent) for path in marked}
    assert folders == set(ON_CLOUDS)
