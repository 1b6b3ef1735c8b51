"""What every verb gets: the store that it is for, and where its results go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from sparktxn._foundation.config.store import StoreOptions
from sparktxn._programs.cli.address import Address, find_address
from sparktxn._programs.cli.output import Output

if TYPE_CHECKING:
    from sparktxn.admin import AdminClient
    from sparktxn.maintenance.taskrunning import RunTasks
    from sparktxn.store import Store

TIMEOUT_S: Final = 60.0


class Given(Struct, frozen=True, kw_only=True):
    """The options that all verbs share, as they were given. `run` does the tasks of jobs; None: this process."""

    store: str | None = None
    option: tuple[str, ...] = ()
    config: tuple[Path, ...] = ()
    profile: str | None = None
    timeout_s: float | None = None
    json: bool = False
    run: RunTasks[Any, Any] | None = None

    def joined(self, later: Given) -> Given:
        """Return these options with those of `later`, which were given after the verb's name."""
        return Given(
            store=self.store if later.store is None else later.store,
            option=(*self.option, *later.option),
            config=(*self.config, *later.config),
            profile=later.profile or self.profile,
            timeout_s=self.timeout_s if later.timeout_s is None else later.timeout_s,
            json=self.json or later.json,
            run=self.run or later.run,
        )


class Session:
    """One run of a verb. What it opens is closed when the block ends."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.out = Output(json=given.json)
        self.timeout_s = TIMEOUT_S if given.timeout_s is None else given.timeout_s
        self.job_timeout_s = given.timeout_s
        self.run = given.run
        self._address: Address | None = None
        self._opened: list[Any] = []

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in reversed(self._opened):
            opened.close()

    @property
    def address(self) -> Address:
        """The store's address and settings.

        Raises:
            WrongUsage: none is given, or an option is malformed.
        """
        if self._address is None:
            given = self.given
            self._address = find_address(given.store, given.option, given.config, given.profile)
        return self._address

    def settings(self, **own: Any) -> dict[str, Any]:
        """Return what a client of this store takes: what was given, and settings of the verb's own (``_`` for ``.``).

        What was given with ``--option`` or in a file comes first: a user may want another value.
        """
        address = self.address
        mine = {name.replace("_", "."): value for name, value in own.items() if value is not None}
        return {"bootstrap.servers": address.store, **mine, **address.settings}

    def store(self) -> Store:
        """Return the store, opened.

        Raises:
            StoreNotFound: there is none at the address.
        """
        # Imported here, as in the next methods: the command's help needs no store.
        from sparktxn.store import Store

        store = Store.open(self.address.store, options=self.store_settings())
        self._opened.append(store)
        return store

    def admin(self) -> AdminClient:
        """Return an administrator of the store."""
        from sparktxn.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.address.store, **self.store_settings()})
        self._opened.append(client)
        return client

    def measured(self, doing: str, store: Store, job: Callable[..., Any], *, apply: bool) -> Any:
        """Run a job that takes `dry_run` and `on_bytes`, and return its report; show how many bytes are done.

        On a terminal a dry run comes first: it says how much there is, for the time that is left.
        """
        with self.out.measured(doing, store.log.clock) as meter:
            if apply and self.out.is_watched:
                meter.begin(job(dry_run=True).size_bytes)
            return job(dry_run=not apply, on_bytes=meter.at)

    def store_settings(self) -> StoreOptions:
        """Return the settings of the store's handle, without those of consumers and producers.

        One file of settings then serves every verb; a name that is not a setting at all is refused when the store
        opens.
        """
        from sparktxn._kafka.settings.client import IGNORED_SETTINGS
        from sparktxn._kafka.settings.consumer import CONSUMER_SETTINGS
        from sparktxn._kafka.settings.producer import PRODUCER_SETTINGS

        of_clients = IGNORED_SETTINGS | {known.name for known in (*CONSUMER_SETTINGS, *PRODUCER_SETTINGS)}
        given = self.address.settings
        return StoreOptions({name: value for name, value in given.items() if name not in of_clients})
