"""What each change has: the fields of its form, what it would do, whether that still holds, and doing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from msgspec import Struct

from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.pagetext import visible
from sparktxn._programs.console.requestparameters import RequestParameters

Row = Mapping[str, Any]


class Field(Struct, frozen=True, kw_only=True):
    """A field of a form; `lines` takes several lines, `choice` one of `choices`, each with its label."""

    name: str
    label: str
    kind: Literal["text", "number", "lines", "choice"] = "text"
    value: str = ""
    help: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    required: bool = False


class Planned(Struct, frozen=True, kw_only=True):
    """What a change would do: `rows` as the command prints them, and `notes` on what else a reader has to know.

    `basis` is what the change rests on, and is in no answer.
    """

    rows: Sequence[Row]
    notes: tuple[str, ...] = ()
    basis: Any = None


class Change(Struct, frozen=True):
    """A change that a form asks for. It is checked when it is made of a form, and a plan of it reads the store.

    The methods raise KafkaException, where the store refuses it or does not answer.
    """

    kind: ClassVar[str]
    heading: ClassVar[str]
    """What is changed, with a place for each of `subject`."""
    verb: ClassVar[str]
    """What the button says that does it."""
    subject: ClassVar[tuple[str, ...]] = ()
    """The parameters that name what is changed: they are in the form's address, and no reader types them."""
    is_job: ClassVar[bool] = False
    """Whether it is a job of maintenance: it may take longer than a page, and what is 0 in its report is not shown."""

    @classmethod
    def title(cls, asked: RequestParameters) -> str:
        """Return what is changed, as a heading."""
        return cls.heading.format(*(visible(asked.text(name), 80) for name in cls.subject))

    @classmethod
    def fields(cls, source: Source, asked: RequestParameters) -> list[Field]:
        """Return the fields of its form, with what was given or else what is so now."""
        raise NotImplementedError

    @classmethod
    def asked(cls, source: Source, asked: RequestParameters) -> Self:
        """Return the change that a form asks for.

        Raises:
            WrongRequest, ConfigurationError: a field is wrong.
        """
        raise NotImplementedError

    def planned(self, source: Source) -> Planned:
        """Return what it would do now; nothing is written."""
        raise NotImplementedError

    def still_holds(self, source: Source, planned: Planned) -> bool:
        """Return whether the store is still as the plan says."""
        return bool(self.planned(source).basis == planned.basis)

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Do what the plan says, and return what was done, as the command prints it."""
        raise NotImplementedError

    def address(self) -> str:
        """Return where the result can be seen."""
        raise NotImplementedError
