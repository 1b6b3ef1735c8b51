"""The calls of confluent-kafka's AdminClient that have no meaning without brokers: each is refused."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from sparktxn.admin.answers import AnsweringClient
from sparktxn.kafka.unsupported import not_implemented

__all__ = ["UnsupportedCalls"]

_ACCESS: Final = "the object store's own permissions say who may read and write"
_USERS: Final = "a store has no users: the object store's credentials are storage.* settings"


class UnsupportedCalls(AnsweringClient):
    """What administrators of brokers do. Each call raises KafkaException with ``_NOT_IMPLEMENTED``."""

    def create_acls(self, acls: Any, **options: Any) -> NoReturn:
        """Refuse the call: there are no access rules."""
        raise not_implemented("create_acls()", _ACCESS)

    def describe_acls(self, acl_binding_filter: Any, **options: Any) -> NoReturn:
        """Refuse the call: there are no access rules."""
        raise not_implemented("describe_acls()", _ACCESS)

    def delete_acls(self, acl_binding_filters: Any, **options: Any) -> NoReturn:
        """Refuse the call: there are no access rules."""
        raise not_implemented("delete_acls()", _ACCESS)

    def describe_user_scram_credentials(self, users: Any = None, **options: Any) -> NoReturn:
        """Refuse the call: there are no users."""
        raise not_implemented("describe_user_scram_credentials()", _USERS)

    def alter_user_scram_credentials(self, alterations: Any, **options: Any) -> NoReturn:
        """Refuse the call: there are no users."""
        raise not_implemented("alter_user_scram_credentials()", _USERS)

    def elect_leaders(self, election_type: Any, partitions: Any = None, **options: Any) -> NoReturn:
        """Refuse the call: partitions have no leaders."""
        raise not_implemented("elect_leaders()", "partitions have no leaders: every writer may write to all of them")
