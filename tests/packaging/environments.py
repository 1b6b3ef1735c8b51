"""Environments that have what one install line brings, and nothing else: a wheel of this checkout, and other packages.

`linked` takes the packages from the environment of the tests, as hard links, in about a second. `installed` is pip's
own work, which needs an index.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["ROOT", "Environment", "build_wheel", "installed", "linked", "requirements_of"]

ROOT: Final = Path(__file__).parents[2]
_US: Final = "sparktxn"
_CONSTRAINTS: Final = ROOT / ".ci" / "constraints.txt"
_INSTALL_S: Final = 600


class Environment(NamedTuple):
    """A virtual environment."""

    folder: Path

    @property
    def commands(self) -> Path:
        return self.folder / "bin"

    @property
    def python(self) -> Path:
        return self.commands / "python"

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def variables(self) -> dict[str, str]:
        """The variables of a shell in which the environment is active, and which knows no other one."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "SPARK", "TXNLOG", "PYTHON", "PYSPARK", "PYTEST", "VIRTUAL_ENV"))
        }
        return {**kept, "PATH": f"{self.commands}{os.pathsep}{_without_ours(kept['PATH'])}", "BROWSER": "true"}

    def run(self, *arguments: str | Path, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Run this environment's Python in its folder."""
        return subprocess.run(
            [self.python, *arguments],
            cwd=self.folder,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into `folder`, with no index."""
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True, timeout=_INSTALL_S)
    (wheel,) = folder.glob(f"{_US}-*.whl")
    return wheel


def requirements_of(line: str) -> list[str]:
    """Return what an install line asks pip for; of a checkout, ``.[cli]``, by the package's name.

    >>> requirements_of("pip install '.[cli]' deltalake  # in a checkout")
    ['sparktxn[cli]', 'deltalake']
    """
    words = re.findall(r"'[^']*'|\"[^\"]*\"|\S+", line.partition(" #")[0].partition("pip install ")[2])
    asked = [word.strip("'\"") for word in words if not word.startswith("-")]
    return [re.sub(r"^(?:\.|.*\.whl\)?)(?=\[|$)", _US, word) for word in asked]


def installed(folder: Path, wheel: Path, requirements: Sequence[str]) -> Environment:
    """Make an environment with pip, which gets `requirements` as a user would give them."""
    venv.create(folder, with_pip=True, symlinks=True)
    environment = Environment(folder)
    words = [re.sub(rf"^{_US}(?=\[|$)", str(wheel), word) for word in requirements]
    options = ("--quiet", "--disable-pip-version-check", "--constraint", _CONSTRAINTS)
    done = environment.run("-m", "pip", "install", *options, *words, timeout_s=_INSTALL_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return environment


def linked(folder: Path, wheel: Path, requirements: Sequence[str]) -> Environment:
    """Make an environment of what the tests' own one has of `requirements`, and of all that these need."""
    venv.create(folder, with_pip=False, symlinks=True)
    environment = Environment(folder)
    zipfile.ZipFile(wheel).extractall(environment.packages)
    (ours,) = metadata.distributions(path=[str(environment.packages)])
    _write_commands(environment, ours)
    for distribution in _closure(ours, requirements):
        _link(environment, distribution)
        _write_commands(environment, distribution)
    return environment


def _closure(ours: metadata.Distribution, requirements: Iterable[str]) -> Iterator[metadata.Distribution]:
    """Yield the distributions that `requirements` need, without `ours`, each once."""
    known: dict[str, metadata.Distribution] = {canonicalize_name(_US): ours}
    waiting, seen = [Requirement(text) for text in requirements], set()
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        if name not in known:
            known[name] = metadata.distribution(asked.name)
            yield known[name]
        for extra in ("", *asked.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            waiting += [
                needed
                for needed in map(Requirement, known[name].requires or ())
                if needed.marker is None or needed.marker.evaluate({"extra": extra})
            ]


def _link(environment: Environment, distribution: metadata.Distribution) -> None:
    """Give the environment the files of a distribution, also its scripts that are not entry points."""
    here = Path(sysconfig.get_path("purelib"))
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file))).resolve()
        if source.is_relative_to(here):
            target = environment.packages / source.relative_to(here)
        elif source.parent.name == "bin" and not source.read_bytes().startswith(f"#!{sys.prefix}".encode()):
            target = environment.commands / source.name
        else:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            _hard_link(source, target)


def _hard_link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _write_commands(environment: Environment, distribution: metadata.Distribution) -> None:
    """Write the commands that pip would write for a distribution."""
    for entry in distribution.entry_points.select(group="console_scripts"):
        command = environment.commands / entry.name
        command.write_text(
            f"#!{environment.python}\nimport sys\nfrom {entry.module} import {entry.attr.partition('.')[0]}\n"
            f"sys.exit({entry.attr}())\n"
        )
        command.chmod(0o755)


def _without_ours(path: str) -> str:
    """Return a PATH without the folder of the tests' environment, whose commands would be found there."""
    ours = Path(sys.executable).parent
    return os.pathsep.join(folder for folder in path.split(os.pathsep) if Path(folder) != ours)
