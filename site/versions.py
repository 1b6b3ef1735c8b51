"""Put a built site into the folder of its version, and list the versions: `python site/versions.py BUILT FOLDER`.

The list is the file `versions.json` that the theme's selector of versions reads, and the page that leads to the newest
release. Sites of other versions that are in FOLDER, as a web server has them, stay and are listed.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

ROOT: Final = Path(__file__).parents[1]
LATEST: Final = "latest"

_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>sparktxn</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="refresh" content="0; url={first}/index.html">
<h1>sparktxn</h1>
<ul>
{items}
</ul>
</html>
"""


def placed(built: Path, folder: Path, version: str) -> None:
    """Move the built site to the folder of its version, in place of an earlier one, and list all versions."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / version, ignore_errors=True)
    (built / "404.html").unlink(missing_ok=True)  # Its style is found from the root of a host only.
    built.rename(folder / version)
    listed = versions_in(folder)
    releases = [one for one in listed if not Version(one).is_prerelease]
    first = (releases or listed)[0]
    entries = [
        {"version": one, "title": "dev" if Version(one).is_devrelease else one, "aliases": [LATEST] * (one == first)}
        for one in listed
    ]
    (folder / "versions.json").write_text(json.dumps(entries, indent=2) + "\n")
    items = "\n".join(f'<li><a href="{one}/index.html">{one}</a></li>' for one in listed)
    (folder / "index.html").write_text(_PAGE.format(first=first, items=items))


def versions_in(folder: Path) -> list[str]:
    """Return the versions that have a site in the folder, the newest one first."""
    return sorted(
        (path.parent.name for path in folder.glob("*/index.html") if _is_version(path.parent.name)),
        key=Version,
        reverse=True,
    )


def _is_version(name: str) -> bool:
    try:
        Version(name)
    except InvalidVersion:
        return False
    return True


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    placed(Path(sys.argv[1]), Path(sys.argv[2]), project["version"])
