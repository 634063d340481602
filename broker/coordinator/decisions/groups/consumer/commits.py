"""Who may commit and fetch offsets of a consumer group: the member that the partition was given to (KIP-848, KIP-1251)."""

from collections.abc import Iterable

from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember
from ottla.runtime.errors import ErrorCode

_BY_EPOCH_FROM = 9
"""Older requests cannot be told that an epoch is stale."""

Partitions = Iterable[tuple[bytes | None, int]]
"""Topic ids and partitions; None: there is no such topic."""


def commit_error(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    version: int,
    partitions: Partitions,
    *,
    is_transactional: bool = False,
) -> ErrorCode:
    """Without an epoch it comes from an administrator, or from somebody who assigns partitions himself: then nobody may read in the
    group. An epoch before the member's is taken for partitions that it has had since: its heartbeat has overtaken its commit."""
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    stale = _stale_of(member)
    if not is_transactional and member.classic is None and version < _BY_EPOCH_FROM:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return ErrorCode.NONE
    if epoch > member.epoch:
        return stale
    for topic_id, partition in partitions:
        given = member.epoch_of(topic_id, partition) if topic_id is not None else None
        if given is None or epoch < given:
            return stale
    return ErrorCode.NONE


def fetch_error(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Who does not say who he is may look."""
    if not member_id and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else _stale_of(member)


def _stale_of(member: ConsumerMember) -> ErrorCode:
    """Of epochs classic members know nothing."""
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
