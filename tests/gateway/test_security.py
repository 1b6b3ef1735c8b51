"""Which clients a gateway answers: users by PLAIN and SCRAM, TLS, and what is refused before a client is known."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn._programs.gateway.security.access import AccessOptions, AuthenticationFailed, access_of, new_exchange
from sparktxn._programs.gateway.security.authentication import FailedLogins
from sparktxn._programs.gateway.security.users import Users, Verifier, read_users, user_lines
from sparktxn.errors import ConfigurationError
from tests.cli.terminal import ok, txnlog
from tests.gateway.certificates import Authority
from tests.gateway.processes import Gateway, gateway, new_store
from tests.gateway.test_peers import free_addresses
from tests.gateway.wire import Refused, Wire

IDS = RandomIds()
PASSWORD = "the Pässword, = 4 alice"
NAME = "alice,=x"
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS: tuple[Mechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def users_file(folder: Path, *lines: str, mode: int = 0o600) -> Path:
    file = folder / "users"
    file.write_text("\n".join(("# users", "", *(lines or user_lines(NAME, PASSWORD, IDS)))) + "\n")
    file.chmod(mode)
    return file


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("secured")
    with gateway(new_store(folder), "--sasl-users", str(users_file(folder))) as found:
        yield found
        code, err = found.end()
        assert code == 0
        assert PASSWORD not in err


# The exchanges, against a client that is written from RFC 5802 here


class ScramClient:
    def __init__(self, mechanism: str, name: str, password: str) -> None:
        self.hash = HASHES[mechanism]
        self.repeated = ""
        self.password = password
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={escaped},r=client-nonce".encode()
        self.first = b"n,," + self.bare

    def last(self, answer: bytes) -> bytes:
        given = dict(part.split("=", 1) for part in answer.decode().split(","))
        assert given["r"].startswith("client-nonce")
        salt = base64.b64decode(given["s"])
        salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), salt, int(given["i"]))
        key = hmac.digest(salted, b"Client Key", self.hash)
        without_proof = f"c=biws,r={self.repeated}{given['r']}".encode()
        said = self.bare + b"," + answer + b"," + without_proof
        stored = hashlib.new(self.hash, key).digest()
        proof = bytes(a ^ b for a, b in zip(key, hmac.digest(stored, said, self.hash), strict=True))
        server_key = hmac.digest(salted, b"Server Key", self.hash)
        self.expected = b"v=" + base64.b64encode(hmac.digest(server_key, said, self.hash))
        return without_proof + b",p=" + base64.b64encode(proof)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Users:
    return read_users(users_file(tmp_path_factory.mktemp("users")), IDS)


@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_proves_both_sides(users: Users, mechanism: str) -> None:
    client, exchange = ScramClient(mechanism, NAME, PASSWORD), new_exchange(mechanism, users, IDS)
    first = exchange.step(client.first)
    assert first.user is None
    last = exchange.step(client.last(first.answer))
    assert (last.user, last.answer) == (NAME, client.expected)


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(("name", "password"), [(NAME, "wrong"), ("bob", PASSWORD), ("bob", "")])
def test_scram_refuses_wrong_passwords_and_users_alike(users: Users, mechanism: str, name: str, password: str) -> None:
    client, exchange = ScramClient(mechanism, name, password), new_exchange(mechanism, users, IDS)
    first = exchange.step(client.first)
    assert b",i=16384" in first.answer
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism SCRAM") as refused:
        exchange.step(client.last(first.answer))
    assert "bob" not in str(refused.value)


def test_a_user_that_does_not_exist_has_the_same_salt_each_time(users: Users) -> None:
    salts = {users.verifier("bob", "SCRAM-SHA-256").salt for _ in range(3)}
    assert len(salts) == 1
    assert salts != {users.verifier("eve", "SCRAM-SHA-256").salt}


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,r=x,n=alice",
        b"n,,m=1,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=" + b"x" * 2000,
        b"n,,n=alice,r=x,tokenauth=true",
        b"n,,n=\xff,r=x",
        b"\0alice\0password",
    ],
)
def test_a_first_message_that_is_none_is_refused(users: Users, message: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        new_exchange("SCRAM-SHA-256", users, IDS).step(message)
    assert "alice" not in str(refused.value)


def test_a_last_message_must_continue_the_first(users: Users) -> None:
    client = ScramClient("SCRAM-SHA-256", NAME, PASSWORD)
    for change in (
        lambda last: last.replace(b"c=biws", b"c=eSws"),
        lambda last: last.replace(b"r=client", b"r=Client"),
        lambda last: last.partition(b",p=")[0],
        lambda last: last[:-8],
        lambda last: last + b"!",
        lambda last: b"",
    ):
        exchange = new_exchange("SCRAM-SHA-256", users, IDS)
        last = client.last(exchange.step(client.first).answer)
        with pytest.raises(AuthenticationFailed):
            exchange.step(change(last))


@given(
    mechanism=st.sampled_from(["PLAIN", *HASHES]),
    messages=st.lists(st.binary() | st.text("n,=raprc\0:;").map(str.encode), min_size=1, max_size=3),
    proper=st.booleans(),
)
@settings(max_examples=200)
def test_no_message_ends_an_exchange_otherwise(
    users: Users, mechanism: str, messages: list[bytes], proper: bool
) -> None:
    exchange = new_exchange(mechanism, users, IDS)
    start = [ScramClient("SCRAM-SHA-256", NAME, PASSWORD).first] if proper else []
    with suppress(AuthenticationFailed):
        for message in (*start, *messages):
            assert exchange.step(message).user is None


def test_plain_takes_the_password_and_nothing_else(users: Users) -> None:
    def said(*parts: str) -> str | None:
        return new_exchange("PLAIN", users, IDS).step("\0".join(parts).encode()).user

    assert said("", NAME, PASSWORD) == said(NAME, NAME, PASSWORD) == NAME
    for parts in (["", NAME, "x"], ["", "bob", PASSWORD], ["bob", NAME, PASSWORD], ["", NAME], ["", NAME, "a", "b"]):
        with pytest.raises(AuthenticationFailed) as refused:
            said(*parts)
        assert PASSWORD not in str(refused.value)


# The file of users


def test_verifiers_are_never_shown(users: Users) -> None:
    assert repr(users) == "Users(1 users)"
    assert repr(Verifier(1, b"salt", b"stored", b"server")) == "Verifier(…)"


def test_lines_of_users_are_made_by_the_command(tmp_path: Path) -> None:
    made = ok("gateway", "--sasl-line", "alice", stdin=PASSWORD.encode() + b"\n")
    assert [line.split("$")[0] for line in made.lines] == ["alice SCRAM-SHA-256", "alice SCRAM-SHA-512"]
    assert PASSWORD not in made.text
    known = read_users(users_file(tmp_path, *made.lines), IDS)
    assert known.has_password("alice", PASSWORD)
    assert not known.has_password("alice", PASSWORD.lower())


@pytest.mark.parametrize(("name", "password"), [("a b", "x"), ("", "x"), ("a" * 256, "x"), ("a\x7f", "x"), ("a", "")])
def test_names_and_passwords_that_no_file_can_have_are_refused(name: str, password: str) -> None:
    done = txnlog("gateway", "--sasl-line", name, stdin=password.encode())
    assert (done.code, done.out) == (2, b"")


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o660, 0o620])
def test_a_file_that_others_can_read_or_its_group_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigurationError, match="expected 0600, or 0640"):
        read_users(users_file(tmp_path, mode=mode), IDS)
    assert len(read_users(users_file(tmp_path, mode=0o640), IDS)) == 1


def test_a_line_that_is_none_is_named_and_not_shown(tmp_path: Path) -> None:
    good, other = user_lines("alice", PASSWORD, IDS)
    stored = good.split("$")[-1]
    for line in (
        "alice secret-password",
        good.replace("SHA-256", "SHA-1"),
        good.replace("$16384", "$4095"),
        good.replace("$16384", "$2000000"),
        good.replace(stored, stored[4:]),
        good.replace(stored, "!" + stored[1:]),
        good.replace("SHA-256", "SHA-512"),
        good + ":",
        good.replace("alice", "al\x7fice"),
    ):
        with pytest.raises(ConfigurationError, match="line 4: expected NAME SCRAM") as refused:
            read_users(users_file(tmp_path, other, line), IDS)
        assert not any(part in str(refused.value) for part in ("secret-password", stored))
    with pytest.raises(ConfigurationError, match="line 4: the user has such a line before"):
        read_users(users_file(tmp_path, good, good), IDS)
    with pytest.raises(ConfigurationError, match="has no user"):
        read_users(users_file(tmp_path, "#"), IDS)
    with pytest.raises(ConfigurationError, match="No such file"):
        read_users(tmp_path / "missing", IDS)


# Over the wire


def proved(wire: Wire, mechanism: Mechanism, name: str = NAME, password: str = PASSWORD, version: int = 2) -> Any:
    """The last answer of an authentication."""
    offered = wire.ask("sasl_handshake", 1, mechanism=mechanism)
    assert (offered.error_code, mechanism in offered.mechanisms) == (ErrorCode.none, True)
    if mechanism == "PLAIN":
        return wire.ask("sasl_authenticate", version, auth_bytes=f"\0{name}\0{password}".encode())
    client = ScramClient(mechanism, name, password)
    first = wire.ask("sasl_authenticate", version, auth_bytes=client.first)
    last = wire.ask("sasl_authenticate", version, auth_bytes=client.last(first.auth_bytes))
    assert last.error_code is not ErrorCode.none or last.auth_bytes == client.expected
    return last


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("version", range(3))
def test_a_user_is_served_once_it_is_known(secured: Gateway, mechanism: Mechanism, version: int) -> None:
    with Wire(secured.address) as wire:
        assert wire.ask("api_versions", 0).error_code is ErrorCode.none
        assert proved(wire, mechanism, version=version).error_code is ErrorCode.none
        assert wire.ask("list_groups", 5).error_code is ErrorCode.none
        again = wire.ask("sasl_handshake", 1, mechanism=mechanism)
        assert again.error_code is ErrorCode.illegal_sasl_state
        assert wire.ask("list_groups", 5).error_code is ErrorCode.none


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_answered_late_and_ends_the_connection(secured: Gateway, mechanism: Mechanism) -> None:
    with Wire(secured.address) as wire:
        began_s = time.monotonic()
        answer = proved(wire, mechanism, password="wrong")
        assert time.monotonic() - began_s >= 0.5
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert answer.error_message
        assert wire.is_closed()


def token_of(wire: Wire, token: bytes) -> bytes:
    """Send a bare token, and return what comes back."""
    wire.send_frame(token)
    return wire.frame()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_tokens_come_bare_after_a_handshake_of_version_0(secured: Gateway, mechanism: Mechanism) -> None:
    with Wire(secured.address) as wire:
        offered = wire.ask("sasl_handshake", 0, mechanism=mechanism)
        assert (offered.error_code, mechanism in offered.mechanisms) == (ErrorCode.none, True)
        if mechanism == "PLAIN":
            assert token_of(wire, f"\0{NAME}\0{PASSWORD}".encode()) == b"", "kafka-python waits for four bytes of zero"
        else:
            client = ScramClient(mechanism, NAME, PASSWORD)
            last = token_of(wire, client.last(token_of(wire, client.first)))
            assert last == client.expected
        assert wire.ask("list_groups", 5).error_code is ErrorCode.none


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_bare_token_that_is_refused_has_no_answer_but_the_end(secured: Gateway, mechanism: Mechanism) -> None:
    def refused(token: bytes) -> None:
        with Wire(secured.address) as wire:
            wire.ask("sasl_handshake", 0, mechanism=mechanism)
            with pytest.raises(Refused):
                token_of(wire, token)

    refused(f"\0{NAME}\0wrong".encode())
    refused(b"n,,n=alice,r=")
    # A client that goes on as after version 1: what it sends is a token, too.
    refused(bytes((0, 36, 0, 2)) + b"\0\0\0\1\0\0\0\0")
    with Wire(secured.address) as wire:
        wire.ask("sasl_handshake", 0, mechanism=mechanism)
        wire.socket.sendall(bytes(4))
        assert wire.is_closed(), "an empty token is none"
    with Wire(secured.address) as wire:
        wire.ask("sasl_handshake", 1, mechanism=mechanism)
        with pytest.raises(Refused):
            token_of(wire, f"\0{NAME}\0{PASSWORD}".encode())


@pytest.mark.parametrize("mechanism", HASHES)
def test_the_nonce_of_an_older_librdkafka_is_taken(users: Users, mechanism: str) -> None:
    """It is its own nonce and then what the server has said. A broker checks the end of it, too."""
    client, exchange = ScramClient(mechanism, NAME, PASSWORD), new_exchange(mechanism, users, IDS)
    client.repeated = "client-nonce"
    assert exchange.step(client.last(exchange.step(client.first).answer)).user == NAME
    client, exchange = ScramClient(mechanism, NAME, PASSWORD), new_exchange(mechanism, users, IDS)
    last = client.last(exchange.step(client.first).answer)
    with pytest.raises(AuthenticationFailed):
        exchange.step(last.replace(b",r=client-nonce", b",r="))


def fails_by_password(wire: Wire) -> None:
    assert proved(wire, "PLAIN", password="wrong").error_code is ErrorCode.sasl_authentication_failed


def fails_by_bare_password(wire: Wire) -> None:
    wire.ask("sasl_handshake", 0, mechanism="SCRAM-SHA-512")
    client = ScramClient("SCRAM-SHA-512", NAME, "wrong")
    wire.send_frame(client.last(token_of(wire, client.first)))


def asks_for_versions_only(wire: Wire) -> None:
    wire.ask("api_versions", 0)
    wire.socket.shutdown(socket.SHUT_WR)


FAILURES: dict[str, Callable[[Wire], Any]] = {
    "Authentication failed: Invalid username or password": fails_by_password,
    "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512": (
        fails_by_bare_password
    ),
    "mechanism GSSAPI is none of SCRAM-SHA-256, SCRAM-SHA-512, PLAIN": (
        lambda wire: wire.ask("sasl_handshake", 0, mechanism="GSSAPI")
    ),
    "what it names as a mechanism is none of": lambda wire: wire.ask("sasl_handshake", 1, mechanism=PASSWORD),
    "SaslAuthenticate came before SaslHandshake": lambda wire: wire.ask("sasl_authenticate", 2, auth_bytes=b"x"),
    "its first request is metadata, and this gateway has --sasl-users": lambda wire: wire.send(
        "metadata", 4, topics=[]
    ),
    "it has left without saying who it is": asks_for_versions_only,
    "it begins TLS, and this gateway has no --tls-certificate": (
        lambda wire: wire.socket.sendall(bytes((0x16, 3, 1, 2, 0, 1)))
    ),
}


def test_a_login_that_fails_is_a_line_of_the_log_and_not_one_for_each_try(tmp_path: Path) -> None:
    with gateway(new_store(tmp_path), "--sasl-users", str(users_file(tmp_path))) as found:
        for fail in FAILURES.values():
            for _ in range(3):
                with Wire(found.address) as wire:
                    fail(wire)
                    assert wire.is_closed()
        with Wire(found.address):
            pass  # a probe that only connects has not tried to log in
        _, err = found.end()
    assert err.count("cannot log in") == len(FAILURES), err
    for cause in FAILURES:
        assert err.count(f"a client at 127.0.0.1 cannot log in: {cause}") == 1, err
    assert not any(secret in err for secret in (PASSWORD, "wrong", NAME)), err


def test_gateways_that_look_for_each_other_have_not_failed_to_log_in(tmp_path: Path) -> None:
    store, addresses, users = new_store(tmp_path), free_addresses(2), ("--sasl-users", str(users_file(tmp_path)))
    peers = ("--peers", ",".join(addresses))
    with (
        gateway(store, *peers, *users, listen=addresses[0]) as first,
        gateway(store, *peers, *users, listen=addresses[1]) as second,
    ):
        for address in addresses * 3:
            with Wire(address) as wire:
                proved(wire, "PLAIN")
                while len(wire.ask("metadata", 7, topics=[], allow_auto_topic_creation=False).brokers) < 2:
                    time.sleep(0.1)
        said = [found.end()[1] for found in (first, second)]
    assert not any("cannot log in" in err for err in said), said


def test_failed_logins_are_counted_between_lines_and_bounded(caplog: pytest.LogCaptureFixture) -> None:
    class Clock(SystemClock):
        now_s = 1000.0

        def monotonic_s(self) -> float:
            return self.now_s

    def lines() -> list[Any]:
        found = [record.args for record in caplog.records]
        caplog.clear()
        return found

    clock = Clock()
    failures = FailedLogins(clock)
    for _ in range(1000):
        failures.note("a", "wrong password")
    assert lines() == [{"host": "a", "error": "wrong password", "failures": 1}]
    failures.note("b", "wrong password")
    assert [line["host"] for line in lines()] == ["b"], "another client is not hidden by it"
    clock.now_s += 60
    failures.note("a", "wrong password")
    assert lines() == [{"host": "a", "error": "wrong password", "failures": 1000}]
    for number in range(10_000):
        failures.note(f"host {number}", "wrong password")
    assert len(lines()) <= 101, "an attacker with many addresses does not fill the log"
    clock.now_s += 60
    failures.note("c", "wrong password")
    assert [line["host"] for line in lines()] == ["c"], "it goes on"


def test_nothing_else_is_answered_before(secured: Gateway) -> None:
    with Wire(secured.address) as wire, pytest.raises(Refused):
        wire.ask("list_groups", 5)
    with Wire(secured.address) as wire:
        answer = wire.ask("sasl_handshake", 1, mechanism="GSSAPI")
        assert answer.error_code is ErrorCode.unsupported_sasl_mechanism
        assert answer.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
        assert wire.is_closed()
    for version in (0, 1):
        with Wire(secured.address) as wire:
            answer = wire.ask("sasl_handshake", version, mechanism=PASSWORD)
            assert answer.error_code is ErrorCode.unsupported_sasl_mechanism
            assert wire.is_closed()
    with Wire(secured.address) as wire:
        answer = wire.ask("sasl_authenticate", 2, auth_bytes=f"\0{NAME}\0{PASSWORD}".encode())
        assert answer.error_code is ErrorCode.illegal_sasl_state
        assert wire.is_closed()


def test_a_large_frame_of_an_unknown_client_is_not_read(secured: Gateway) -> None:
    with Wire(secured.address) as wire:
        wire.socket.sendall((1 << 20).to_bytes(4))
        assert wire.is_closed()


def test_a_gateway_without_users_has_nothing_to_ask(tmp_path: Path) -> None:
    with gateway(new_store(tmp_path)) as found, Wire(found.address) as wire:
        assert wire.ask("sasl_handshake", 1, mechanism="PLAIN").error_code is ErrorCode.illegal_sasl_state
        assert wire.ask("sasl_authenticate", 2, auth_bytes=b"").error_code is ErrorCode.illegal_sasl_state
        assert wire.ask("list_groups", 5).error_code is ErrorCode.none


def topics_seen(**options: Any) -> list[str]:
    """What aiokafka's administrator sees."""

    async def ask() -> list[str]:
        admin = AIOKafkaAdminClient(request_timeout_ms=30_000, **options)
        await admin.start()
        try:
            return list(await admin.list_topics())
        finally:
            await admin.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_library_is_known(secured: Gateway, mechanism: str) -> None:
    known = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_plain_username": NAME}
    address = {"bootstrap_servers": secured.address}
    assert topics_seen(**address, **known, sasl_plain_password=PASSWORD) == ["orders"]
    with pytest.raises((AuthenticationFailedError, KafkaConnectionError)):
        topics_seen(**address, **known, sasl_plain_password="wrong")


# TLS


def client_context(authority: Authority, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


def test_clients_are_served_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.certificate("gateway")
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with gateway(new_store(tmp_path), *options) as found:
        with Wire(found.address, client_context(authority)) as wire:
            assert wire.ask("list_groups", 5).error_code is ErrorCode.none
        with Wire(found.address) as wire, pytest.raises(Refused):
            wire.ask("list_groups", 5)
        address = f"localhost:{found.address.rpartition(':')[2]}"
        context = client_context(authority)
        assert topics_seen(bootstrap_servers=address, security_protocol="SSL", ssl_context=context) == ["orders"]


def test_clients_have_to_show_a_certificate(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    certificate, key = authority.certificate("gateway")
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key), "--tls-client-ca", str(authority.file))
    with gateway(new_store(tmp_path), *options) as found:
        context = client_context(authority, authority.certificate("client"))
        with Wire(found.address, context) as wire:
            assert wire.ask("list_groups", 5).error_code is ErrorCode.none
        for shown in (None, other.certificate("stranger")):
            with pytest.raises((ssl.SSLError, Refused)), Wire(found.address, client_context(authority, shown)) as wire:
                wire.ask("list_groups", 5)


# Where it may listen


def access(host: str, **options: Any) -> Any:
    return access_of(host, AccessOptions(**options), IDS)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "kafka.example.com"])
def test_other_machines_are_not_served_without_tls_or_users(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigurationError, match="--allow-plaintext"):
        access(host)
    assert access(host, allows_plaintext=True).users is None
    users = users_file(tmp_path)
    assert access(host, sasl_users=users).mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512"), "no password in plain text"
    assert "PLAIN" in access(host, sasl_users=users, allows_plaintext=True).mechanisms
    certificate, key = Authority(tmp_path).certificate("gateway")
    tls = {"tls_certificate": certificate, "tls_key": key}
    assert access(host, **tls).tls is not None
    assert "PLAIN" in access(host, sasl_users=users, **tls).mechanisms


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_is_served_without(host: str) -> None:
    assert access(host).tls is None


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).certificate("gateway", b"secret")
    text = tmp_path / "text"
    text.write_text("no certificate")
    for options, message in (
        ({"tls_certificate": text}, "--tls-certificate '.*text': expected a certificate"),
        ({"tls_certificate": tmp_path / "missing"}, "--tls-certificate '.*missing' cannot be read: No such file"),
        ({"tls_certificate": certificate, "tls_key": tmp_path / "missing"}, "--tls-key '.*missing' cannot be read"),
        ({"tls_certificate": certificate, "tls_key": key}, "the key without a password"),
        ({"tls_key": key}, "--tls-key is given without --tls-certificate"),
        ({"tls_client_ca": text}, "--tls-client-ca is given without --tls-certificate"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            access("0.0.0.0", **options)
    certificate, key = Authority(tmp_path).certificate("other")
    with pytest.raises(ConfigurationError, match=r"--tls-client-ca '.*text': expected certificates"):
        access("0.0.0.0", tls_certificate=certificate, tls_key=key, tls_client_ca=text)


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_an_address_that_is_taken_names_the_option_to_change(tmp_path: Path, option: str) -> None:
    store = new_store(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = txnlog("gateway", "--store", store, "--listen", "127.0.0.1:0", option, address)
    assert done.code == 2
    assert done.err.endswith(
        f"Address already in use: choose another port, or another address of this machine, with {option} HOST:PORT\n"
    )


def test_the_command_refuses_before_it_listens(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    done = txnlog("gateway", "--store", store, "--listen", "0.0.0.0:0")
    assert (done.code, done.out) == (2, b"")
    assert "--allow-plaintext" in done.err
    done = txnlog("gateway", "--store", store, "--listen", "0.0.0.0:0", "--allow-plaintext")
    assert done.code == 2
    assert "give one with --advertise" in done.err


def test_a_client_that_says_nothing_keeps_no_other_waiting(secured: Gateway) -> None:
    host, _, port = secured.address.rpartition(":")
    with socket.create_connection((host, int(port))), Wire(secured.address) as wire:
        assert proved(wire, "PLAIN").error_code is ErrorCode.none
