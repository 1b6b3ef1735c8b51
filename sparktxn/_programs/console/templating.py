"""Pages as HTML: templates of Jinja that escape whatever they show."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sparktxn._programs.console import pagetext
from sparktxn._programs.console.pagesource import Page


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
        loader=PackageLoader("sparktxn._programs.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Any] = {
        "age": pagetext.age,
        "cell": pagetext.cell,
        "clock": pagetext.clock_text,
        "duration": pagetext.duration,
        "field": pagetext.field,
        "number": pagetext.number,
        "segment": pagetext.segment_path,
        "size": pagetext.size,
        "time": pagetext.time,
        "visible": pagetext.visible,
    }
    found.filters.update(filters)
    found.globals["query"] = pagetext.query
    # Browsers keep the sheet: after an update it has another address.
    sheet = resources.files("sparktxn._programs.console").joinpath("static", "console.css").read_bytes()
    found.globals["sheet"] = f"/static/console.css?v={sha256(sheet).hexdigest()[:8]}"
    return found
