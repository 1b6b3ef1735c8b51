"""Assertions of test modules are rewritten once, before the workers start: each would do it for all modules.

pytest keeps what it has rewritten. So this costs something in a fresh clone only: half as much as to collect the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

__all__ = ["rewrite_once"]

# pytest has no name of its own for any of this: a release that renames it makes the first run slower, and says nothing.
_NEEDED = ("_read_pyc", "_rewrite_test", "_write_pyc", "assertstate_key", "get_cache_dir", "PYC_TAIL")


def rewrite_once(config: pytest.Config, files: Iterable[Path]) -> None:
    """Rewrite those of `files` that pytest has not kept, on all cores."""
    if sys.dont_write_bytecode or not hasattr(os, "fork") or not all(hasattr(rewrite, name) for name in _NEEDED):
        return
    new = [(file, kept) for file in files if rewrite._read_pyc(file, kept := _kept(file)) is None]
    # The workers start afterwards: this process has no thread yet.
    forks = multiprocessing.get_context("fork")
    cores = os.cpu_count() or 1
    parts = [forks.Process(target=_rewrite, args=(config, new[first::cores])) for first in range(min(cores, len(new)))]
    for part in parts:
        part.start()
    for part in parts:
        part.join()


def _kept(file: Path) -> Path:
    return rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"


def _rewrite(config: pytest.Config, new: list[tuple[Path, Path]]) -> None:
    for file, kept in new:
        kept.parent.mkdir(parents=True, exist_ok=True)
        source_hash, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, kept)
