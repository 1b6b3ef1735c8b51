"""A console that is served by this process, and the Chromium that opens it."""

from __future__ import annotations

import hashlib
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from sparktxn._programs.console.guard import Guard
from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.routes import application
from sparktxn.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["axe_source", "chromium", "served", "serving"]

_AXE_SHA256: Final = "84494fec757e4710dc751c8d7a636e457f4532f08f85c86dc9070133fbff53bc"  # axe-core 4.12.1


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Debian's Chromium, and end it. In it, the same page is the same pixels each time."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    assert path is not None, "Chromium is missing: .ci/ensure-chromium"
    # A sandbox cannot be made by root, and nothing here comes from another host.
    options = ["--no-sandbox", "--font-render-hinting=none", "--disable-lcd-text", "--force-color-profile=srgb"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        try:
            yield browser
        finally:
            browser.close()


def axe_source() -> str:
    """Return the script of axe-core, which is the one that was looked at."""
    data = resources.files("axe_playwright_python").joinpath("axe.min.js").read_bytes()
    assert hashlib.sha256(data).hexdigest() == _AXE_SHA256, "axe is another one: compare it with axe-core's own package"
    return data.decode()


@contextmanager
def served(
    store: Store, *, token: str | None = None, timeout_s: float | None = 30.0, allow_changes: bool = False
) -> Iterator[str]:
    """Serve the console of an open store from a thread, and yield its address, without a slash at the end."""
    source = Source(store, allow_changes=allow_changes)
    with serving(Guard(application(source, timeout_s), token)) as address:
        yield address


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an application of ASGI from a thread, and yield its address, without a slash at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="served-console")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
