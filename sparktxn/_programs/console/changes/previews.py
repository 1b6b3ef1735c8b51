"""What was previewed and may be applied once, and what came of it; alone keeps both, for all requests of a console."""

from __future__ import annotations

import hmac
import threading
from typing import Final

from msgspec import Struct

from sparktxn._foundation.process.clock import Ids
from sparktxn._programs.console.changes.change import Change, Planned, Row
from sparktxn._programs.console.requestparameters import NotFound, Refused

_KEPT: Final = 50


class Preview(Struct, frozen=True):
    """A change, its heading and what it would do, as a reader has seen it."""

    change: Change
    title: str
    planned: Planned


class PreviewOutcome(Struct, frozen=True):
    """What came of a preview: 200 and what was done, or the code and the text of an error.

    `is_known` is False if the change had begun, and may be done in part or as a whole.
    """

    code: int
    rows: tuple[Row, ...] = ()
    message: str = ""
    is_known: bool = True


class _Kept(Struct):
    preview: Preview
    begun: bool = False
    outcome: PreviewOutcome | None = None


class Previews:
    """The newest previews of a console, each of which is applied at most once; safe for several threads."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self.form_token = ids.token() + ids.token()
        """What each form has, and no page of another site can know."""

    def check(self, form_token: str) -> None:
        """Check that a request comes from a form of this console.

        Raises:
            Refused: it does not.
        """
        if not hmac.compare_digest(form_token.encode("utf-8", "replace"), self.form_token.encode()):
            raise Refused(
                "the request has not the token of this console's forms (form_token): load the form again, as the "
                "console may have been started anew"
            )

    def keep(self, preview: Preview) -> str:
        """Keep a preview, and return its number, which cannot be guessed; the oldest ones are forgotten."""
        number = self._ids.token()
        with self._lock:
            self._kept[number] = _Kept(preview)
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return number

    def begin(self, number: str) -> Preview | None:
        """Return a preview for the one request that applies it; None if another request does or did.

        Raises:
            NotFound: it is forgotten, or never was.
        """
        with self._lock:
            kept = self._find(number)
            if kept.begun:
                return None
            kept.begun = True
            return kept.preview

    def end(self, number: str, outcome: PreviewOutcome) -> None:
        """Keep what came of a preview that was begun."""
        with self._lock:
            if number in self._kept:
                self._kept[number].outcome = outcome

    def result(self, number: str) -> tuple[Preview, PreviewOutcome | None]:
        """Return a preview that was begun, and what came of it; None while it is being applied.

        Raises:
            NotFound: it is forgotten, or was not begun.
        """
        with self._lock:
            kept = self._find(number)
            if not kept.begun:
                raise NotFound("this preview was not applied")
            return kept.preview, kept.outcome

    def _find(self, number: str) -> _Kept:
        kept = self._kept.get(number)
        if kept is None:
            raise NotFound(
                "this console does not know this preview any more, and has changed nothing: ask for a preview again"
            )
        return kept
