"""A client's dictionary of settings, sorted: its own, the store's, and librdkafka's that mean nothing here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, Self

from sparktxn._engine.objectstore.uri import parse_uri
from sparktxn._foundation.config.settings import Setting, setting, settings_of, values_by_field
from sparktxn._foundation.config.store import STORE_SETTINGS, StoreOptions, is_store_setting
from sparktxn._foundation.config.values import MILLISECONDS, function, integer, path, text
from sparktxn._foundation.process.events import log_event
from sparktxn.errors import ConfigurationError, nearest_name

# librdkafka's settings that have no meaning without brokers: accepted, so that a porter's dictionary works as it is.
#
# A client looks up its own settings first. A name may be here because it means something to the other client only, as
# librdkafka accepts it too.

_NETWORK: Final = """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    broker.address.family broker.address.ttl broker.version.fallback builtin.features client.dns.lookup client.id
    client.rack connections.max.idle.ms debug enable.metrics.push enable.random.seed enabled_events
    internal.termination.signal log.connection.close log.queue log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes metadata.broker.list metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy plugin.library.paths
    receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms
    retry.backoff.max.ms retry.backoff.ms socket.blocking.max.ms socket.connection.setup.timeout.ms
    socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
    socket.send.buffer.bytes socket.timeout.ms statistics.interval.ms topic.blacklist
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
"""

_SECURITY: Final = """
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location https.ca.pem
    sasl.aws.assume.role.arn sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
    sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password
    sasl.username security.protocol ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location
    ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm
    ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
    ssl.keystore.password ssl.providers ssl.sigalgs.list ssl_ca ssl_certificate ssl_engine_callback_data ssl_key
"""

_CALLBACKS: Final = """
    background_event_cb closesocket_cb connect_cb default_topic_conf default.topic.config error_cb interceptors
    log_cb logger oauth_cb oauthbearer_token_refresh_cb opaque open_cb resolve_cb socket_cb stats_cb throttle_cb
"""

_CONSUMER: Final = """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs consume.callback.max.messages consume_cb
    coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms
    fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id
    group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms isolation.level
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records offset.store.method offset.store.path
    offset.store.sync.interval.ms offset_commit_cb partition.assignment.strategy queued.max.messages.kbytes
    queued.min.messages rebalance_cb session.timeout.ms share.acknowledgement.mode
"""

_PRODUCER: Final = """
    acks batch.num.messages batch.size compression.codec compression.level compression.type
    delivery.report.only.error delivery.timeout.ms dr_cb dr_msg_cb enable.gapless.guarantee enable.idempotence
    linger.ms message.max.bytes message.send.max.retries message.timeout.ms msg_order_cmp on_delivery partitioner
    partitioner_cb produce.offset.report queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queue.buffering.max.ms queuing.strategy request.required.acks request.timeout.ms
    retries sticky.partitioning.linger.ms transaction.timeout.ms transactional.id
"""

IGNORED_SETTINGS: Final = frozenset((_NETWORK + _SECURITY + _CALLBACKS + _CONSUMER + _PRODUCER).split())


_SECURITY_SETTINGS: Final = frozenset(_SECURITY.split())


def report_ignored(names: Collection[str], client: str) -> None:
    """Log the settings that change nothing in this `client`, by name: a debug line, and a warning for security.

    A program that asks for encryption or for a user must learn that neither is applied.
    """
    security = _SECURITY_SETTINGS.intersection(names)
    if others := sorted(set(names) - security):
        log_event("settings_ignored", client=client, settings=", ".join(others))
    if security:
        log_event("security_settings_ignored", client=client, settings=", ".join(sorted(security)))


_ADDRESS: Final = "bootstrap.servers"
_EXPECTED_ADDRESS: Final = "the store's address, such as /data/log or s3://bucket/prefix"


def none_if_empty(value: str) -> str | None:
    """Return None for a setting that is empty text."""
    return value or None


def settings_of_keywords(keywords: Mapping[str, Any], callbacks: Collection[str] = ()) -> dict[str, Any]:
    """Return keyword arguments as settings: ``_`` means ``.``, but in the names of callbacks."""
    return {name if name in callbacks else name.replace("_", "."): value for name, value in keywords.items()}


class SortedSettings(NamedTuple):
    """A client's settings by dotted name, with defaults; the names that were given; the settings of the store."""

    values: dict[str, Any]
    given: set[str]
    store_options: StoreOptions


def sort_settings(
    settings: Sequence[Setting], given: Mapping[str, Any], client: str, required: Mapping[str, str] | None = None
) -> SortedSettings:
    """Parse the settings in `given`, whose names are dotted.

    Names of librdkafka's that have no meaning here are accepted and change nothing. `required` are names that must have
    a value, in addition to the address, with what is expected.

    Raises:
        ConfigurationError: a name is unknown, a value is wrong, or a required one is missing.
    """
    by_name = {name: known for known in settings for name in (known.name, *known.aliases)}
    values: dict[str, Any] = {known.name: known.default for known in settings}
    named: set[str] = set()
    store_options = StoreOptions()
    ignored: list[str] = []
    for name, value in given.items():
        if (known := by_name.get(name)) is not None:
            if value is None:
                continue  # as in librdkafka: not given
            values[known.name] = known.parsed(value, name)
            named.add(known.name)
        elif is_store_setting(name):
            store_options[name] = value
        elif name in IGNORED_SETTINGS:
            ignored.append(name)
        else:
            nearest = nearest_name(name, [*by_name, *(row.name for row in STORE_SETTINGS)])
            raise ConfigurationError(f'No such configuration property: "{name}"{nearest}')
    report_ignored(ignored, client)
    if values[_ADDRESS]:
        # Refused by name when the client is made, not when it opens the store.
        parse_uri(values[_ADDRESS])
    for name, expected in {**(required or {}), _ADDRESS: _EXPECTED_ADDRESS}.items():
        if not values[name]:
            raise ConfigurationError(f'Failed to create {client}: "{name}" must be configured: {expected}')
    return SortedSettings(values, named, store_options)


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """The settings that all clients share. `store_options` are for Store.open.

    `client` names the client in errors, and `required` are settings that must have a value, with what is expected.
    """

    client: ClassVar[str]
    required: ClassVar[Mapping[str, str]] = {}

    uri: str = setting(
        _ADDRESS,
        "",
        path,
        "The store's address: a path, file://, s3://bucket/prefix or memory://name (alias store.uri).",
        aliases=("store.uri", "metadata.broker.list"),
    )
    store_options: dict[str, Any] = field(default_factory=StoreOptions)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return the settings of `given`, whose names are dotted.

        Names of librdkafka's that have no meaning here are accepted and change nothing.

        Raises:
            ConfigurationError: a name is unknown, a value is wrong or contradicts another, or one that is required is
                missing, such as the store's address.
        """
        values, explicit, store_options = sort_settings(settings_of(cls), given, cls.client, cls.required)
        cls.check(values, explicit)
        return cls(**values_by_field(cls, values), store_options=store_options)

    @classmethod
    def check(cls, values: Mapping[str, Any], explicit: Set[str]) -> None:
        """Refuse `values` that contradict each other; `explicit` are those that were given.

        Raises:
            ConfigurationError: they do.
        """


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000


@dataclass(frozen=True, kw_only=True)
class PolledSettings(ClientSettings):
    """The settings that clients with `poll()` share, where its callbacks are called."""

    client_id: str = setting(
        "client.id", "", text, "The client's name in its log lines; of a consumer also in describe_consumer_groups."
    )
    statistics_interval_s: float = setting(
        "statistics.interval.ms",
        0,
        integer(0, 86_400_000, MILLISECONDS),
        "How often stats_cb is called; 0 is never.",
        convert=_seconds,
    )
    stats_cb: Callable[[str], Any] | None = setting(
        "stats_cb",
        None,
        function,
        "Called inside poll() with librdkafka's JSON of statistics, every statistics.interval.ms.",
    )
    error_cb: Callable[[Any], None] | None = setting(
        "error_cb",
        None,
        function,
        "Called with a KafkaError inside poll(), and flush(): the store does not answer a consumer, or a producer can only be closed.",
    )


# Settings of an admin client.


@dataclass(frozen=True, kw_only=True)
class AdminSettings(ClientSettings):
    """The settings of an admin client."""

    client = "admin client"


ADMIN_SETTINGS: Final = settings_of(AdminSettings)
