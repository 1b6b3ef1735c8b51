"""Pages as HTML: templates of Jinja that escape whatever they show."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sparktxn.console import shown
from sparktxn.console.shownstore import Page


def render(page: Page, path: str, store: str, now_ms: int, *, may_change: bool) -> str:
    """Return the HTML of a page; `path` is where it is, `store` the address that its head names.

    With `may_change` it links to the forms of changes.
    """
    template = _environment().get_template(page.template)
    given = {"path": path, "store_uri": store, "now_ms": now_ms, "may_change": may_change}
    text: str = template.render({**page.content, **given, "title": page.title})
    # Halves of surrogate pairs are in no encoding.
    return text.encode("utf-8", "replace").decode()


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("sparktxn.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Any] = {
        "age": shown.age,
        "cell": shown.cell,
        "clock": shown.clock_text,
        "duration": shown.duration,
        "field": shown.field,
        "number": shown.number,
        "segment": shown.segment_path,
        "size": shown.size,
        "time": shown.time,
        "visible": shown.visible,
    }
    found.filters.update(filters)
    found.globals["query"] = shown.query
    # Browsers keep the sheet: after an update it has another address.
    sheet = resources.files("sparktxn.console").joinpath("static", "console.css").read_bytes()
    found.globals["sheet"] = f"/static/console.css?v={sha256(sheet).hexdigest()[:8]}"
    return found
