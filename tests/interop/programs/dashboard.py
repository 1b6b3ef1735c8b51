"""Reads the dashboard as Grafana's own package does, and prints what it has lost or changed of it: nothing."""

from __future__ import annotations

import json
import sys
from typing import Any

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def differences(given: Any, read: Any, path: str = "") -> list[str]:
    if isinstance(given, dict) and isinstance(read, dict):
        lost = [f"{path}/{name}" for name in given if name not in read]
        return lost + [
            one for name in given if name in read for one in differences(given[name], read[name], f"{path}/{name}")
        ]
    if isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        return [
            one
            for index, (a, b) in enumerate(zip(given, read, strict=True))
            for one in differences(a, b, f"{path}[{index}]")
        ]
    return [] if given == read else [f"{path}: {given!r} is {read!r}"]


with open(sys.argv[1]) as file:
    given = json.load(file)
plugins.register_default_plugins()
read = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(given)))
print(json.dumps(differences(given, read)))
