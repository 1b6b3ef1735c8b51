"""Files of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktxn import ConfigurationError, read_properties


def test_names_and_values_are_read_without_comments_and_white_space(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# a comment\n! another\n\n store.uri = /data/shop \nstorage.secret=a=b\nlinger.ms=1\nlinger.ms=5\n"
    )
    assert read_properties(file) == {"store.uri": "/data/shop", "storage.secret": "a=b", "linger.ms": "5"}
    assert read_properties(str(file)) == read_properties(file)


@pytest.mark.parametrize("content", [b"storage.secret\n", b"=hidden\n", b"storage.secret=\xff\n"])
def test_a_wrong_file_is_named_and_its_content_is_not(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"a=1\n" + content)
    with pytest.raises(ConfigurationError, match=r"client\.properties") as caught:
        read_properties(file)
    assert "hidden" not in str(caught.value)
    assert "storage.secret" not in str(caught.value)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_properties(tmp_path / "absent")
    with pytest.raises(ConfigurationError, match="directory"):
        read_properties(tmp_path)
    with pytest.raises(TypeError, match="file is 5"):
        read_properties(5)  # type: ignore[arg-type]
