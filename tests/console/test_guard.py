"""Which requests are answered: by host, by token, by origin; and what an answer lets a browser do."""

from __future__ import annotations

import pytest

from sparktxn._foundation.process.listening import is_loopback
from sparktxn._programs.console.serving import check_access
from sparktxn.errors import ConfigurationError
from tests.console.asking import HOST, Console
from tests.world import World

TOKEN = "a-token-of-enough-characters"


@pytest.mark.parametrize("host", ["127.0.0.1:8477", "localhost", "LOCALHOST:1", "[::1]:8477", "127.0.0.2"])
def test_addresses_and_names_of_this_machine_are_answered(console: Console, host: str) -> None:
    assert console.get("/topics", host=host).code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8477",
        "",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "[",
        "::",
    ],
)
def test_another_sites_name_that_leads_here_is_not(console: Console, host: str) -> None:
    for target in ("/topics", "/static/console.css", "/log/1/raw", f"/?token={TOKEN}"):
        answer = console.get(target, host=host)
        assert answer.code == 421
        assert "topic" not in answer.text


def test_with_a_token_addresses_and_the_name_that_is_listened_at_are_answered(busy: World) -> None:
    for listened, host, code in (
        ("0.0.0.0", "10.1.2.3:8477", 401),
        ("0.0.0.0", "evil.example", 421),
        ("shop.example", "shop.example:8477", 401),
        ("shop.example", "other.example:8477", 421),
    ):
        assert Console(busy.store, host=listened, token=TOKEN).get("/", host=host).code == code


def test_without_the_token_only_the_form_is_shown(busy: World) -> None:
    console = Console(busy.store, token=TOKEN)
    for target in ("/", "/topics/six/records", "/log/1/raw", "/topics/six/download"):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "txnlog_console=x"}, {"cookie": '="'}):
            answer = console.ask("GET", target, headers)
            assert answer.code == 401
            assert "six" not in answer.text
    assert console.get("/static/console.css").code == 200


def test_a_token_is_taken_as_a_bearer_in_the_address_and_by_the_form(busy: World) -> None:
    console = Console(busy.store, token=TOKEN)
    assert console.get("/topics", authorization=f"Bearer {TOKEN}").code == 200
    answers = [
        console.get(f"/topics?q=s&token={TOKEN}"),
        console.ask("POST", "/", {"origin": f"http://{HOST}"}, f"token={TOKEN}".encode()),
    ]
    for answer, where in zip(answers, ("/topics?q=s", "/"), strict=True):
        assert (answer.code, answer.headers["location"]) == (303, where)
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie
        assert console.get("/topics", cookie=cookie.partition(";")[0]).code == 200


def test_a_token_leads_to_no_other_host(busy: World) -> None:
    console = Console(busy.store, token=TOKEN)
    for path in ("//evil.example/", "/\\evil.example", "/%0d%0aset-cookie:a=b"):
        where = console.get(f"{path}?token={TOKEN}").headers["location"]
        assert where.startswith("/")
        assert not where.startswith(("//", "/\\"))
        assert not {"\r", "\n", "\\"} & set(where)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://{HOST}", "sec-fetch-site": "cross-site"},
    ],
)
def test_a_change_from_another_site_is_refused(console: Console, method: str, headers: dict[str, str]) -> None:
    assert console.ask(method, "/topics", headers).code == 403


def test_nothing_can_be_changed(console: Console) -> None:
    assert console.ask("POST", "/topics", {"origin": f"http://{HOST}"}).code == 405


def test_an_answer_runs_no_script_and_is_in_no_frame(console: Console) -> None:
    for target in ("/", "/nothing", "/static/console.css", "/log/1/raw"):
        headers = console.get(target, accept="text/html").headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "script-src" not in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")
        assert headers["cache-control"] == ("max-age=3600" if "static" in target else "no-store")
        assert "access-control-allow-origin" not in headers


def test_other_machines_are_refused_without_a_token() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        check_access(host, None)
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "shop.example"):
        with pytest.raises(ConfigurationError, match="give a --token"):
            check_access(host, None)
        check_access(host, TOKEN)
    with pytest.raises(ConfigurationError, match="expected at least 16"):
        check_access("127.0.0.1", "short")
