"""Secrets of settings in texts of clients: none of them is left, in any spelling, and names are left whole."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktxn._engine.objectstore.remote import SECRET_CHARACTERS_MIN, SecretMask
from sparktxn.errors import StoreUnavailable
from sparktxn.testing.objectstore_tests import Opening
from tests.each import each

SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "url": lambda one: quote(one, safe=""),
    "url, lower": lambda one: re.sub(r"%..", lambda found: found[0].lower(), quote(one, safe="")),
    "url twice": lambda one: quote(quote(one, safe=""), safe=""),
    "form": quote_plus,
    "python": lambda one: repr(one)[1:-1],
    "json": lambda one: json.dumps(one)[1:-1],
    "xml": html.escape,
}
AROUND = (
    "{}",
    "key {} is wrong",
    "'{}'",
    '"{}",',
    "({})",
    "?sig={}&x=1",
    "x={};",
    "a {}. b",
    "http://h/{}/p",
    "\\n{}\\n",
)
secrets = st.one_of(
    st.text("abcXYZ0189+/=_-", min_size=SECRET_CHARACTERS_MIN, max_size=44),
    st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=SECRET_CHARACTERS_MIN, max_size=30),
).filter(lambda one: one == one.strip() and any(letter.isalnum() for letter in one))


@given(secrets, st.sampled_from(sorted(SPELLINGS)), st.sampled_from(AROUND))
def test_a_secret_is_hidden_in_every_spelling(secret: str, spelling: str, around: str) -> None:
    spelled = SPELLINGS[spelling](secret)
    hidden = SecretMask({"secret": secret}).hidden(around.format(spelled))
    assert "***" in hidden
    if len(spelled) > len(around) or spelled not in around:
        assert spelled not in hidden


@given(secrets, st.text(max_size=8), st.text(max_size=8), st.booleans())
def test_a_secret_is_hidden_in_base64(secret: str, before: str, after: str, urlsafe: bool) -> None:
    data = f"{before}:{secret}{after}".encode()
    encoded = (base64.urlsafe_b64encode if urlsafe else base64.b64encode)(data).decode()
    if len(secret.encode()) >= 6:
        assert (
            SecretMask({"secret": secret}).hidden(f"Authorization: Basic {encoded} x") == "Authorization: Basic *** x"
        )


names = st.from_regex(r"[a-z0-9][a-z0-9.-]{1,20}[a-z0-9]", fullmatch=True)


@given(names, names, st.sampled_from(["test", "minio", "minioadmin", "admin", "key1"]))
def test_names_and_endpoints_are_left_whole(bucket: str, host: str, secret: str) -> None:
    endpoint = f"http://{host}:9000"
    storage = {"key": secret, "secret": f"{secret}123", "endpoint_url": endpoint}
    text = f'Could not connect to the endpoint URL: "{endpoint}/{bucket}?prefix=a%2Fb" of s3://{bucket}/x'
    assert SecretMask(storage, (f"s3://{bucket}/x", f"{bucket}/x", bucket)).hidden(text) == text


@each(["latest-events", "test-data", "my.test", "contest", "test_2", "atest", "s3://latest/attestation"])
def test_a_short_secret_breaks_no_longer_word(word: str) -> None:
    assert SecretMask({"key": "test", "secret": "test"}).hidden(f"of {word}, {word}.") == f"of {word}, {word}."


def test_a_name_that_is_a_secret_too_is_left_where_it_is_a_whole_name() -> None:
    mask = SecretMask({"key": "minio", "secret": "minio-s3cret/x", "endpoint_url": "http://minio:9000"}, ["data"])
    assert mask.hidden("http://minio:9000/data minio-s3cret/x minio:9000") == "http://minio:9000/data *** minio:9000"


def test_parts_of_settings_are_secrets_too() -> None:
    pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nw0BAQEFAASCBKcwggSj\n-----END KEY-----"
    storage = {
        "endpoint_url": "http://user:p%40ssw0rd@host:9000",
        "client_kwargs": {"aws_session_token": "inner-token-1"},
        "connection_string": "AccountName=shop;AccountKey=account+key==;BlobEndpoint=http://x",
        "token": {"private_key": pem, "list": ["listed-secret"]},
    }
    mask = SecretMask(storage)
    said = mask.hidden(
        f"p@ssw0rd p%40ssw0rd inner-token-1 account+key== MIIEvQIBADANBgkqhkiG listed-secret {pem!r} host:9000"
    )
    assert re.sub(r"[^ ]*\*\*\*[^ ]*", "*", said).split() == ["*"] * 6 + ["*", "host:9000"]


@pytest.mark.parametrize("secret", ["test", "latest", "attestations"])
def test_an_error_says_which_bucket_and_endpoint_it_means(secret: str) -> None:
    endpoint = "http://127.0.0.1:9"
    opening = Opening("s3://latest-events/attestations", {"key": "test", "secret": secret, "endpoint_url": endpoint})
    with pytest.raises(StoreUnavailable) as raised:
        opening.open().get("a")
    assert "***" not in str(raised.value)
    assert f"{endpoint}/latest-events/attestations/a" in str(raised.value)
