"""Access rules and passwords, in confluent-kafka's shapes: programs can name them, a store has none.

Who may read or write a store is said by the object store's own permissions.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, TypeVar

from sparktxn import arguments
from sparktxn.errors import ConfigurationError
from sparktxn.kafka.admin import ResourceType, resource_type
from sparktxn.kafka.operations import AclOperation

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "ResourcePatternType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "UserScramCredentialAlteration",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
]


class AclPermissionType(IntEnum):
    """Whether a rule allows or denies (Kafka's ids)."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePatternType(IntEnum):
    """How a rule's name matches resources (Kafka's ids)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


_Member = TypeVar("_Member", bound=IntEnum)


def _member(name: str, value: object, kind: type[_Member]) -> _Member:
    """Return a member of `kind` by itself, its name or its number."""
    if isinstance(value, str) and value.upper() in kind.__members__:
        return kind[value.upper()]
    if isinstance(value, int) and not isinstance(value, bool) and value in kind.__members__.values():
        return kind(value)
    expected = "one of " + ", ".join(kind.__members__)
    raise ConfigurationError(f"{name} is {arguments.described(value)}: expected {expected}")


class AclBinding(arguments.Checked):
    """A rule of access. Equal and hashed by all of it.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: a type or an operation is none of Kafka's.
    """

    _checks: ClassVar = {
        "restype": lambda value: resource_type(value),
        "resource_pattern_type": lambda value: _member("resource_pattern_type", value, ResourcePatternType),
        "operation": lambda value: _member("operation", value, AclOperation),
        "permission_type": lambda value: _member("permission_type", value, AclPermissionType),
        "name": lambda value: arguments.text("name", value),
        "principal": lambda value: arguments.text("principal", value),
        "host": lambda value: arguments.text("host", value),
    }

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str | None,
        resource_pattern_type: ResourcePatternType | str | int,
        principal: str | None,
        host: str | None,
        operation: AclOperation | str | int,
        permission_type: AclPermissionType | str | int,
    ) -> None:
        self.restype = restype
        self.name = name
        self.resource_pattern_type = resource_pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type

    def _all(self) -> tuple[object, ...]:
        pattern = self.resource_pattern_type
        return (self.restype, self.name, pattern, self.principal, self.host, self.operation, self.permission_type)

    def __eq__(self, other: object) -> bool:
        return self._all() == other._all() if isinstance(other, AclBinding) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({','.join(map(str, self._all()))})"


class AclBindingFilter(AclBinding):
    """Which rules are meant; a name, a principal or a host that is None matches any."""

    _checks: ClassVar = {
        **AclBinding._checks,
        "name": lambda value: arguments.text_or_none("name", value),
        "principal": lambda value: arguments.text_or_none("principal", value),
        "host": lambda value: arguments.text_or_none("host", value),
    }


class ScramMechanism(IntEnum):
    """A mechanism of passwords (Kafka's ids)."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramCredentialInfo(arguments.Checked):
    """A mechanism and its number of iterations."""

    _checks: ClassVar = {
        "mechanism": lambda value: arguments.instance("mechanism", value, ScramMechanism),
        "iterations": lambda value: arguments.integer("iterations", value),
    }

    def __init__(self, mechanism: ScramMechanism, iterations: int) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


class UserScramCredentialsDescription(arguments.Checked):
    """A user's mechanisms."""

    _checks: ClassVar = {
        "user": lambda value: arguments.text("user", value),
        "scram_credential_infos": lambda value: arguments.items("scram_credential_infos", value, ScramCredentialInfo),
    }

    def __init__(self, user: str, scram_credential_infos: list[ScramCredentialInfo]) -> None:
        self.user = user
        self.scram_credential_infos = scram_credential_infos


class UserScramCredentialAlteration(arguments.Checked):
    """A change of a user's password."""

    _checks: ClassVar = {"user": lambda value: arguments.text("user", value)}

    def __init__(self, user: str) -> None:
        self.user = user


class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """A user's password, set or changed. It is never shown."""

    _checks: ClassVar = {
        **UserScramCredentialAlteration._checks,
        "scram_credential_info": lambda value: arguments.instance("scram_credential_info", value, ScramCredentialInfo),
        "password": lambda value: arguments.bytes_like("password", value),
        "salt": lambda value: None if value is None else arguments.bytes_like("salt", value),
    }

    def __init__(
        self, user: str, scram_credential_info: ScramCredentialInfo, password: bytes, salt: bytes | None = None
    ) -> None:
        super().__init__(user)
        self.scram_credential_info = scram_credential_info
        self.password = password
        self.salt = salt


class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """A user's password of one mechanism, removed."""

    _checks: ClassVar = {
        **UserScramCredentialAlteration._checks,
        "mechanism": lambda value: arguments.instance("mechanism", value, ScramMechanism),
    }

    def __init__(self, user: str, mechanism: ScramMechanism) -> None:
        super().__init__(user)
        self.mechanism = mechanism
