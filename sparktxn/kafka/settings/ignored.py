"""librdkafka's settings that have no meaning without brokers: accepted, so that a porter's dictionary works as it is.

A client looks up its own settings first. A name may be here because it means something to the other client only, as
librdkafka accepts it too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sparktxn.process.events import log_event

__all__ = ["IGNORED_SETTINGS", "report_ignored"]

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
