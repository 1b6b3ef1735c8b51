"""Kafka's own tools: the jars that they need, fetched once and checked, and how to run them.

The jars lie in ``$XDG_CACHE_HOME/sparktxn-interop`` (``~/.cache/sparktxn-interop``). When it is fetched, each must have
the SHA-1 that Maven Central publishes. Whenever it is used it must have the SHA-256 that is pinned here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

KAFKA: Final = "4.1.0"
_CENTRAL: Final = "https://repo1.maven.org/maven2"
_TIMEOUT_S: Final = 120


class Jar(NamedTuple):
    group: str
    artifact: str
    version: str
    sha256: str
    ending: str = ".jar"

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}{self.ending}"

    @property
    def url(self) -> str:
        return f"{_CENTRAL}/{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file}"


_K: Final = "org.apache.kafka"
_SCALA: Final = "org.scala-lang"
_JOPT: Final = "net.sf.jopt-simple"
JARS: Final = (
    Jar(_K, "kafka_2.13", KAFKA, "0de0471a4c7a9e734c166822a26a4bb064eb81cb2c7a8b1345912cad78997a7b"),
    Jar(_K, "kafka-clients", KAFKA, "eb74709dc3be35e06208827860c87a94872e8a4b00f466880670785c85a20627"),
    Jar(_K, "kafka-server-common", KAFKA, "73b8b467597429cc0f3c959b0bb1181556071aaab13a6240b9877a37a8c312d0"),
    Jar(_K, "kafka-storage", KAFKA, "d4b5cebcd9aeeb2db68b6ff3922bf08e776bb7d4c90f1045768267192625c810"),
    Jar(_K, "kafka-tools-api", KAFKA, "2127f95153a53b8b4fc46e90e08a0b6c0d40f9faee386fff17ab0c3882e881ba"),
    Jar(_SCALA, "scala-library", "2.13.16", "1ebb2b6f9e4eb4022497c19b1e1e825019c08514f962aaac197145f88ed730f1"),
    Jar(_JOPT, "jopt-simple", "5.0.4", "df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28"),
    Jar("org.slf4j", "slf4j-api", "1.7.36", "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0"),
)  # fmt: skip
"""What the dump tool loads, and nothing else of Kafka's dependencies."""


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "sparktxn-interop")


def _fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:
        data: bytes = response.read()
        return data


def fetch_jars(wanted: Sequence[Jar] = JARS) -> list[Path]:
    """The jars, each fetched if it is not there or not what it should be."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for jar in wanted:
        path = folder / jar.file
        if not path.exists() or _sha256(path) != jar.sha256:
            data = _fetched(jar.url)
            told = _fetched(f"{jar.url}.sha1").decode().split()[0]
            if hashlib.sha1(data).hexdigest() != told or hashlib.sha256(data).hexdigest() != jar.sha256:
                raise ValueError(f"{jar.url} is not what its checksums say")
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.write_bytes(data)
            temporary.replace(path)
        paths.append(path)
    return paths


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    assert found, "no Java: .ci/ensure-java installs one"
    return found


def dump(jars: Sequence[Path], files: Sequence[Path]) -> dict[Path, list[str]]:
    """What Kafka's DumpLogSegments prints of each file, line by line."""
    command = [java(), "-cp", os.pathsep.join(map(str, jars)), "kafka.tools.DumpLogSegments"]
    ended = subprocess.run(
        [*command, "--files", ",".join(map(str, files))], capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[Path, list[str]] = {}
    for line in ended.stdout.splitlines():
        if line.startswith("Dumping "):
            lines = found.setdefault(Path(line.removeprefix("Dumping ")), [])
        else:
            lines.append(line)
    return found
