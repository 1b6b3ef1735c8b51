"""Write both packages into one file for ``spark-submit --py-files``: ``python -m pyspark_txnlog.pack packages.zip``."""

from __future__ import annotations

import argparse
import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyspark_txnlog
import sparktxn
from sparktxn.store.options import arguments

_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every member, the first that a zip file can say: equal packages give an equal file."""


def pack(target: str | os.PathLike[str]) -> int:
    """Write the modules of `sparktxn` and `pyspark_txnlog` as this process imports them; return how many bytes.

    `target` appears whole or not at all, also where two processes write it at once; a file of that name is replaced.

    Raises:
        TypeError: `target` is not a path.
        OSError: the file cannot be written.
    """
    path = Path(arguments.path("target", target))
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for package in (sparktxn, pyspark_txnlog):
                folder = Path(package.__path__[0])
                for module in sorted(folder.rglob("*")):
                    if module.suffix == ".py" or module.name == "py.typed":
                        name = (Path(folder.name) / module.relative_to(folder)).as_posix()
                        archive.writestr(zipfile.ZipInfo(name, _TIME), module.read_bytes(), zipfile.ZIP_DEFLATED)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path.stat().st_size


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file that the command line names; return 0, or 1 if it cannot be written."""
    description = "Write both packages into one file for spark-submit --py-files."
    parser = argparse.ArgumentParser(prog="python -m pyspark_txnlog.pack", description=description)
    parser.add_argument("file", metavar="FILE.zip", type=Path, help="the file to write; its name ends with .zip")
    target: Path = parser.parse_args(arguments).file
    if target.suffix != ".zip":
        # Spark puts other files next to a job, and imports nothing from them.
        parser.error(f"FILE is {str(target)!r}: expected a name that ends with .zip, such as packages.zip")
    try:
        size_bytes = pack(target)
    except OSError as error:
        sys.stderr.write(f"cannot write {str(target)!r}: {error.strerror or error}\n")
        return 1
    use = f"PYTHONPATH={target} spark-submit --py-files {target} job.py"
    sys.stdout.write(f"wrote {target} ({size_bytes:,} bytes). A job gets it by: {use}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
