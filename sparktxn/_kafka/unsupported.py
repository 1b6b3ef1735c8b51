"""What confluent-kafka has and a store has not: programs can name it, and using it is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, ClassVar, Final, NoReturn

from sparktxn._foundation.process.handles import NoCopies
from sparktxn._foundation.values import arguments
from sparktxn.errors import ErrorCode, KafkaError, KafkaException

_ACCESS: Final = "the object store's own permissions say who may read and write"
_USERS: Final = "a store has no users: the object store's credentials are storage.* settings"
_LEADERS: Final = "partitions have no leaders: every writer may write to all of them"
_SHARES: Final = "a store has consumer groups and no share groups: use Consumer"


def not_implemented(call: str, reason: str) -> KafkaException:
    """Return the exception of a call that has no meaning here: ``_NOT_IMPLEMENTED``, with `reason`, a sentence.

    >>> not_implemented("elect_leaders()", "a store has no leaders").args[0].str()
    'elect_leaders() does not exist here: a store has no leaders'
    """
    return KafkaException(KafkaError(ErrorCode.LOCAL_NOT_IMPLEMENTED, f"{call} does not exist here: {reason}"))


def _refused(call: str, reason: str) -> Callable[..., NoReturn]:
    """Return a method that raises `not_implemented`, whatever it is given."""

    def refuse(self: object, *args: Any, **options: Any) -> NoReturn:
        raise not_implemented(f"{call}()", reason)

    refuse.__name__ = call
    refuse.__doc__ = f"Refuse the call: {reason}."
    return refuse


class UnsupportedCalls:
    """What administrators of brokers do. Each call raises KafkaException with ``_NOT_IMPLEMENTED``."""

    create_acls = _refused("create_acls", _ACCESS)
    describe_acls = _refused("describe_acls", _ACCESS)
    delete_acls = _refused("delete_acls", _ACCESS)
    describe_user_scram_credentials = _refused("describe_user_scram_credentials", _USERS)
    alter_user_scram_credentials = _refused("alter_user_scram_credentials", _USERS)
    elect_leaders = _refused("elect_leaders", _LEADERS)


class _Unsupported:
    """A class of confluent-kafka whose values a store has no use for: making one raises ``_NOT_IMPLEMENTED``."""

    _reason: ClassVar = _ACCESS

    def __init__(self, *args: Any, **settings: Any) -> None:
        raise not_implemented(f"{type(self).__name__}()", self._reason)


class AclBinding(_Unsupported):
    """A rule of access."""


class AclBindingFilter(AclBinding):
    """Which rules of access are meant."""


class ScramCredentialInfo(_Unsupported):
    """A mechanism of passwords, and its number of iterations."""

    _reason = _USERS


class UserScramCredentialsDescription(_Unsupported):
    """A user's mechanisms."""

    _reason = _USERS


class UserScramCredentialAlteration(_Unsupported):
    """A change of a user's password."""

    _reason = _USERS


class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """A user's password, set or changed."""


class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """A user's password of one mechanism, removed."""


class ShareConsumer(_Unsupported):
    """A consumer of a share group (KIP-932)."""

    _reason = _SHARES


class DeserializingShareConsumer(ShareConsumer):
    """One with deserializers."""


class Messages(_Unsupported):
    """What a share consumer's poll returns."""

    _reason = _SHARES


# Their numbers are Kafka's ids.
AclPermissionType = IntEnum("AclPermissionType", "UNKNOWN ANY DENY ALLOW", start=0)
ResourcePatternType = IntEnum("ResourcePatternType", "UNKNOWN ANY MATCH LITERAL PREFIXED", start=0)
ScramMechanism = IntEnum("ScramMechanism", "UNKNOWN SCRAM_SHA_256 SCRAM_SHA_512", start=0)
ElectionType = IntEnum("ElectionType", "PREFERRED UNCLEAN", start=0)
AcknowledgeType = IntEnum("AcknowledgeType", "ACCEPT RELEASE REJECT")


# The call by which programs renew the password of a broker's user: checked, and without effect.


class WithoutCredentials(NoCopies):
    """A client of a store: its credentials are ``storage.*`` settings, or the machine's own."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Check `username` and `password`, and change nothing: a store has credentials of its own.

        Raises:
            TypeError: one is not a str; no value is shown.
            RuntimeError: the client is closed.
        """
        self._check()
        arguments.text("username", username, secret=True)
        arguments.text("password", password, secret=True)

    def _check(self) -> None:
        raise NotImplementedError


# The operations that rules of access are about, and those of each kind of resource, as Kafka numbers them.


class AclOperation(IntEnum):
    """What a rule is about (Kafka's ids)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


# A broker without access control lists authorizes every operation that its kind of resource has.
CLUSTER_OPERATIONS: Final = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
TOPIC_OPERATIONS: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
