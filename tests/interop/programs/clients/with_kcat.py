"""Does with kcat, whose path is the first argument, what `tests/interop/gateway/clients.py` asks of each client."""

from __future__ import annotations

import json
import re
import subprocess
import sys

KCAT, PLAN = sys.argv[1], json.loads(sys.argv[2])


def kcat(*words: str, given: str = "", mechanism: str = PLAN["mechanisms"][0], password: str = PLAN["password"]) -> str:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": PLAN["user"],
        "sasl.password": password,
    }
    named = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    done = subprocess.run(
        [KCAT, "-b", PLAN["address"], *named, *words], input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(words, done.stderr, file=sys.stderr)
    return done.stdout


def is_known(mechanism: str, password: str) -> bool:
    return "broker" in kcat("-L", mechanism=mechanism, password=password)


def exchanged(topic: str, values: list[str], codec: str = "none") -> list[str]:
    kcat("-P", "-t", topic, "-z", codec, given="\n".join(values))
    words = ("-X", "auto.offset.reset=earliest", "-c", str(len(values)), "-G", topic, topic)
    return sorted(kcat(*words).splitlines())


def main() -> None:
    kcat("-L")
    parts = {
        "codecs": lambda: {
            codec: exchanged(f"{PLAN['topic']}-{codec}", values, codec) for codec, values in PLAN["codecs"].items()
        },
        "group": lambda: [exchanged(f"{PLAN['topic']}-group", values) for values in PLAN["group"]],
    }
    done = {name: parts[name]() for name in PLAN["parts"]}
    logins = [each for each in PLAN["mechanisms"] if is_known(each, PLAN["password"])]
    is_refused = not is_known(PLAN["mechanisms"][0], "wrong")
    said = subprocess.run([KCAT, "-V"], capture_output=True, text=True, check=False).stdout
    (version,) = re.findall(r"^Version (\S+)", said, re.MULTILINE)
    print(json.dumps({"version": version, "logins": logins, "is_refused": is_refused, **done}))


main()
