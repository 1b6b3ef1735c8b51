"""`txnlog produce` on a store that refuses: it ends in time, and says what the store has said."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from sparktxn import Store
from sparktxn.testing.faultproxy import FaultProxy, RequestFault
from tests.cli.terminal import txnlog
from tests.servers import S3Server
from tests.smalldisks import with_mounts

BUCKET = "refused"
COMMAND = shlex.join([sys.executable, "-m", "sparktxn"])
"""In a process of its own: only that sees what is mounted."""
LINES = b"".join(b"%0200d\n" % number for number in range(2_000))


@pytest.mark.moto
@pytest.mark.parametrize("words", [(), ("--transactional-id", "shop")], ids=["idempotent", "transactional"])
def test_a_bucket_that_denies_puts_is_named(moto_server: S3Server, tmp_path: Path, words: tuple[str, ...]) -> None:
    moto_server.create_bucket(BUCKET)
    with FaultProxy(moto_server.endpoint_url) as proxy:
        options = {**moto_server.options, "storage.endpoint_url": proxy.endpoint_url}
        address = f"s3://{BUCKET}/{tmp_path.name}"
        with Store.open(address, options=options, create=True) as store:
            store.create_topic("t")
        given = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
        asked = ("produce", "-t", "t", "-b", address, *given, "--timeout", "20s", *words)
        proxy.inject(RequestFault.DENIED_BEFORE, method="PUT", times=100_000)
        done = txnlog(*asked, stdin=LINES)
        assert done.code == 1
        assert "AccessDenied" in done.err
        assert options["storage.secret"] not in done.err
        proxy.clear()
        assert txnlog(*asked, stdin=LINES).code == 0
        with Store.open(address, options=options) as store:
            assert sum(one.record_count for one in store.files("t")) == 2_000, "what was refused never comes later"


def test_a_disk_that_is_read_only_or_full_is_named(tmp_path: Path) -> None:
    mounted, lines = tmp_path / "mounted", tmp_path / "lines"
    mounted.mkdir()
    lines.write_bytes(LINES)
    produced = f'{COMMAND} produce -t t -b {mounted}/s --timeout 20s <{lines}; echo "code $?"'
    script = f"""
        mount -t tmpfs -o size=4m tmpfs {mounted} || exit 9
        {COMMAND} topics create t -b {mounted}/s
        mount -o remount,ro {mounted}
        {produced}
        mount -o remount,rw {mounted}
        dd if=/dev/zero of={mounted}/filler bs=1k 2>/dev/null
        {produced}
        rm {mounted}/filler
        {produced}
    """
    done = with_mounts(["sh", "-c", f"exec 2>&1\n{script}"], timeout_s=300)
    if done.returncode == 9:
        pytest.skip("nothing may be mounted here")
    read_only, full, healthy = done.stdout.split("code ")[:3]
    assert "Read-only file system" in read_only
    assert full.startswith("1\n")
    assert "No space left on device" in full
    assert healthy.startswith("1\n")
    assert done.stdout.split("code ")[3].startswith("0")
