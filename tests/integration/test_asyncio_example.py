"""The example for asyncio: each order has one invoice, though its instances are cancelled and killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from examples.asyncio_service import check, create, serve

SCRIPT = Path(__file__).parents[2] / "examples/asyncio_service.py"


@pytest.mark.crash
def test_each_order_has_one_invoice_though_instances_are_killed(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    create(store, 400)
    command = [sys.executable, str(SCRIPT), "--store", store]
    random = Random(5)
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as instance:
            time.sleep(random.uniform(0.8, 2))
            instance.kill()
    done = subprocess.run([*command, "--exit-when-idle", "2"], capture_output=True, text=True, timeout=100, check=True)
    assert done.stderr == ""
    assert check(store) == "right: 400 orders, 400 invoices"


def test_a_service_that_is_cancelled_goes_on(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    create(store, 150)

    async def main() -> None:
        for limit_s in (0.02, 0.1, 0.2, 0.3, 0.4):
            try:
                async with asyncio.timeout(limit_s):
                    await serve(store, "one", 0.5)
            except TimeoutError:
                pass
        await serve(store, "one", 2)

    asyncio.run(asyncio.wait_for(main(), 100))
    assert check(store) == "right: 150 orders, 150 invoices"
