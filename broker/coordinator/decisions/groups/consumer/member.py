"""A member of a consumer group, as its records say it. It does not change: a change is another one."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

import msgspec

from ottla.broker.wire.messages.consumer_group_member_metadata_value import ClassicMemberMetadata

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2
"""A process of a static member has ended, and another of that instance is to come."""

Held = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which the member was given it (KIP-1251)."""

NOTHING_HELD: Held = MappingProxyType({})


class MemberState(IntEnum):
    """How far it has come to its target; the numbers stand in its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has been told to give some up, and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It is to have some that others have not given up yet."""
    UNKNOWN = 127


class ConsumerMember(msgspec.Struct, frozen=True):
    """The first part is what it said of itself (record 5), the second what it was told (record 8)."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """The names that it subscribes to."""
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    """The one it asks for; None: any."""
    classic: ClassicMemberMetadata | None = None
    """Of a member that speaks the classic protocol in this group."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Held = NOTHING_HELD
    revoking: Held = NOTHING_HELD
    """What it was told to give up. Nobody else gets it until it says that it has."""

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """When it was given that partition; None: it does not have it."""
        for held in (self.assigned, self.revoking):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
