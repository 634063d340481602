"""One member comes to its target: it gives up what it is not to have, and only then gets what nobody else holds any more.

The rules are those of KIP-848 (kraft.md 5.3): no member waits for all the others, and no partition is read by two.
"""

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from ottla.broker.coordinator.decisions.groups.assignors import Assignment
from ottla.broker.coordinator.decisions.groups.consumer.member import NOTHING_HELD, ConsumerMember, Held, MemberState

Owned = Mapping[bytes, frozenset[int]]
"""What a member says that it has."""


class Aim(NamedTuple):
    """Where a member is to come."""

    epoch: int
    target: Assignment
    topics: Container[bytes]
    """The topics that it subscribes to now: a target that is older than its subscription may name others."""
    is_free: Callable[[bytes, int], bool]
    """Whether no other member holds a partition."""


def reconciled(member: ConsumerMember, aim: Aim, owned: Owned | None) -> ConsumerMember:
    """The next step, which may be none. ``owned``: None where the member does not say it."""
    match member.state:
        case MemberState.STABLE if member.epoch == aim.epoch:
            return _without_lost_topics(member, aim, owned)
        case MemberState.UNREVOKED_PARTITIONS if _holds_any(owned, member.revoking):
            return _without_lost_topics(member, aim, owned)
        case MemberState.UNKNOWN:
            return _next(replace(member, epoch=aim.epoch), aim, owned)
        case _:
            return _next(member, aim, owned)


def _next(member: ConsumerMember, aim: Aim, owned: Owned | None) -> ConsumerMember:
    kept, revoked = _parted(member.assigned, aim)
    if revoked and _holds_any(owned, revoked):
        # It stays in its epoch, so that its commits of these partitions are still taken.
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=revoked,
        )
    given: dict[bytes, Mapping[int, int]] = dict(kept)
    is_complete = True
    for topic_id, partitions in aim.target.items():
        if topic_id not in aim.topics:
            continue
        missing = partitions - kept.get(topic_id, {}).keys()
        free = {each: aim.epoch for each in sorted(missing) if aim.is_free(topic_id, each)}
        is_complete = is_complete and len(free) == len(missing)
        if free:
            given[topic_id] = {**kept.get(topic_id, {}), **free}
    return replace(
        member,
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        epoch=aim.epoch,
        previous_epoch=member.epoch if member.epoch != aim.epoch else member.previous_epoch,
        assigned=given,
        revoking=NOTHING_HELD,
    )


def _parted(assigned: Held, aim: Aim) -> tuple[Held, Held]:
    """What it keeps, and what it is to give up."""
    kept: dict[bytes, Mapping[int, int]] = {}
    revoked: dict[bytes, Mapping[int, int]] = {}
    for topic_id, partitions in assigned.items():
        target = aim.target.get(topic_id, frozenset()) if topic_id in aim.topics else frozenset()
        if partitions.keys() <= target:
            kept[topic_id] = partitions
            continue
        stays = {each: epoch for each, epoch in partitions.items() if each in target}
        if stays:
            kept[topic_id] = stays
        revoked[topic_id] = {each: epoch for each, epoch in partitions.items() if each not in target}
    return kept, revoked


def _without_lost_topics(member: ConsumerMember, aim: Aim, owned: Owned | None) -> ConsumerMember:
    """It may not wait for the next target to give up topics that it does not subscribe to any more."""
    lost = {topic_id: held for topic_id, held in member.assigned.items() if topic_id not in aim.topics}
    if not lost:
        return member
    kept = {topic_id: held for topic_id, held in member.assigned.items() if topic_id not in lost}
    revoking = {**member.revoking}
    for topic_id, held in lost.items():
        revoking[topic_id] = {**member.revoking.get(topic_id, {}), **held}
    if not _holds_any(owned, revoking):
        return replace(member, previous_epoch=member.epoch, assigned=kept)
    return replace(
        member,
        state=MemberState.UNREVOKED_PARTITIONS,
        previous_epoch=member.epoch,
        assigned=kept,
        revoking=revoking,
    )


def _holds_any(owned: Owned | None, held: Held) -> bool:
    """A member that does not say what it has may have all of it."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(held.get(topic_id, {})) for topic_id, partitions in owned.items())
