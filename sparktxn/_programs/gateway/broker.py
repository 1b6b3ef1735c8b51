"""What all requests share: one store, its threads, and what the gateway keeps in memory for its clients."""

from __future__ import annotations

from typing import Any

from sparktxn._foundation.process.clock import time_left_s
from sparktxn._foundation.process.listening import Endpoint
from sparktxn._programs.gateway.appending import AppendRounds
from sparktxn._programs.gateway.clienttransactions import HeldTransactions
from sparktxn._programs.gateway.gatewaysettings import CONSUMER_SESSION_MS, GatewaySettings
from sparktxn._programs.gateway.groups.classicgroups import ClassicGroups
from sparktxn._programs.gateway.groups.consumergroups import ConsumerGroups
from sparktxn._programs.gateway.groups.grouprosters import GroupRosters
from sparktxn._programs.gateway.groups.ledgroups import LedGroups
from sparktxn._programs.gateway.groups.members import Members
from sparktxn._programs.gateway.partitionreads import Reads
from sparktxn._programs.gateway.placement import Placement, Referrals
from sparktxn._programs.gateway.requestfigures import GatewayFigures
from sparktxn._programs.gateway.requestmemory import Clients, FrameMemory, RequestMemory
from sparktxn._programs.gateway.security.authentication import FailedLogins
from sparktxn._programs.gateway.storecalls import LogEnd, StoreCalls
from sparktxn._programs.gateway.topiclookup import TopicLookup
from sparktxn.admin import AdminClient
from sparktxn.store import Store


class Broker:
    """One gateway of a store, without its sockets."""

    def __init__(self, store: Store, settings: GatewaySettings, listening: Endpoint) -> None:
        self.store = store
        self.log = store.log
        self.settings = settings
        self.advertised = settings.advertised or listening
        self.placement = Placement(self.advertised, settings.peers)
        self.referrals = Referrals(store.log.clock, self.placement)
        self.figures = GatewayFigures()
        self.failed_logins = FailedLogins(store.log.clock)
        self.clients: Clients[Any] = Clients(settings.connections_max, settings.unknown_max)
        self.memory = FrameMemory(settings.requests_bytes_max)
        self.decompressed = RequestMemory(settings.decompressed_bytes_max)
        self.admin = AdminClient({**store.options, "bootstrap.servers": store.uri})
        self.admin.cluster_id()  # so that it has its store before threads ask for it
        self.calls = StoreCalls(self.log.clock, settings.workers, settings.timeout_s)
        self.log_end = LogEnd(self.log, self.calls)
        self.appends = AppendRounds(self.log, linger_s=settings.linger_ms / 1000, timeout_s=settings.timeout_s)
        self.transactions = HeldTransactions(self.log, settings)
        self.topics = TopicLookup(self.log, store.store_id)
        self.reads = Reads(store)
        self.members = Members(self.log)
        roster = GroupRosters(self.log, self.members)
        self.groups = ClassicGroups(self.log, self.members, roster)
        self.led_groups = LedGroups(self.log, self.members, roster)
        self.consumer_groups = ConsumerGroups(self.log, self.members, roster, CONSUMER_SESSION_MS)
        self.roster = roster

    def close(self) -> None:
        """Append what waits, and give back what this gateway holds, by the caller's deadline.

        Open transactions are left to their time-outs.
        """
        self.members.close()
        self.appends.close()
        self.calls.close(time_left_s(self.settings.timeout_s))
        self.admin.close()
