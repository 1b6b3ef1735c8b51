"""Where servers listen: one rule for the text of every address, and errors that name what is wrong with it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktxn._foundation.process.listening import Endpoint, endpoint
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn._programs.cli.servers import listen_endpoint
from sparktxn.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", "127.0.0.1:9092"),
        ("0.0.0.0:0", "0.0.0.0:0"),
        ("host.example:65535", "host.example:65535"),
        ("[::1]:80", "[::1]:80"),
        ("[fe80::1%eth0]:80", "[fe80::1%eth0]:80"),
        (":8080", "127.0.0.1:8080"),
        ("8080", "127.0.0.1:8080"),
        (":0", "127.0.0.1:0"),
        ("localhost", "localhost:9308"),
        ("0.0.0.0", "0.0.0.0:9308"),
        ("[::1]", "[::1]:9308"),
        ("::1", "[::1]:9308"),
        ("::", "[::]:9308"),
    ],
)
def test_a_part_that_is_left_out_is_that_of_the_default(text: str, expected: str) -> None:
    assert str(listen_endpoint(text, None, 9308)) == expected


@pytest.mark.parametrize(
    "text",
    ["", " ", ":", "[]:80", "[]", "[::1", "::1]:80", "[::1]80", "a:b:80", "::1::9092", "http://127.0.0.1:80", "a b:80",
     "host:80/", "127.0.0.1:80,127.0.0.1:81", "user@host:80", "[::1]:", "host:", "host:-1", "host:65536", ":99999",
     "70000", "host:http", "host:８０", "host:+1", "host: 80", "host:80 "],
)  # fmt: skip
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--listen .*: expected (HOST:PORT|0 to 65535)") as raised:
        listen_endpoint(text, None, 9308)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize("text", [":9092", "9092", "host", "::1", "[::1]"])
def test_without_defaults_both_parts_are_needed(text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"--peers {text!r}: expected HOST:PORT, such as")):
        endpoint("--peers", text)


def test_a_port_that_is_given_twice_is_the_same_or_refused() -> None:
    assert listen_endpoint(None, None, 9308) == ("127.0.0.1", 9308)
    assert listen_endpoint(None, 0, 9308) == ("127.0.0.1", 0)
    assert listen_endpoint("0.0.0.0", 80, 9308) == ("0.0.0.0", 80)
    assert listen_endpoint("0.0.0.0:80", 80, 9308) == ("0.0.0.0", 80)
    assert listen_endpoint("::1", 0, 9308) == ("::1", 0)
    with pytest.raises(WrongUsage, match=r"'0\.0\.0\.0:81' and --port 80 name different ports: give the port once"):
        listen_endpoint("0.0.0.0:81", 80, 9308)


@given(st.sampled_from(["localhost", "10.0.0.1", "::1", "fe80::2%lo", "a-b.example"]), st.integers(0, 65_535))
def test_an_endpoint_is_read_as_it_shows_itself(host: str, port: int) -> None:
    assert endpoint("--listen", str(Endpoint(host, port))) == (host, port)
