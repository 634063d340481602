"""Who of the consumer groups was heard from, and who gives up partitions in time. Known to one coordinator alone."""

from collections.abc import Callable, Hashable, Iterator
from functools import partial

from ottla.broker.coordinator.decisions.effects import Effects
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember, MemberState
from ottla.broker.coordinator.decisions.groups.rebalance_record import Kind

Expel = Callable[[ConsumerGroup, ConsumerMember, Kind, str], None]
"""Why, and in what words."""


class Sessions:
    """Of all members of a shard's consumer groups."""

    def __init__(self, effects: Effects, groups: ConsumerGroups, expel: Expel) -> None:
        self._effects = effects
        self._groups = groups
        self._expel = expel
        self._expire_ms: dict[tuple[str, str], int] = {}
        self._awaited: dict[tuple[str, str], int] = {}
        """Classic members that have to take a step, and the epoch in which they were told to."""

    # --- sessions -----------------------------------------------------------------------------------------------------

    def keep(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """It was heard from. Costs no timer: the one that waits looks when it is due."""
        key = group_id, member_id
        clock_ms, expired_ms = self._effects.clock_ms, self._expire_ms.get(key, -1)
        self._expire_ms[key] = clock_ms + timeout_ms
        if not clock_ms < expired_ms <= clock_ms + timeout_ms:
            self._watch(key)

    def _watch(self, key: tuple[str, str]) -> None:
        left_ms = self._expire_ms[key] - self._effects.clock_ms
        self._effects.remind(_session(*key), left_ms, partial(self._look_for, key))

    def _look_for(self, key: tuple[str, str]) -> None:
        group, member = self._find(*key)
        if group is None or member is None:
            self._effects.write((), lambda _: self._forget_unless_back(key))
        elif self._expire_ms[key] > self._effects.clock_ms:
            self._watch(key)
        else:
            self._expel(group, member, Kind.SESSION, "")

    def _forget_unless_back(self, key: tuple[str, str]) -> None:
        """Its departure was committed, or undone: then it is a member again, and nobody else would look for it."""
        if self._find(*key)[1] is None:
            self._expire_ms.pop(key, None)
        elif key in self._expire_ms:
            self._watch(key)

    def _find(self, group_id: str, member_id: str) -> tuple[ConsumerGroup | None, ConsumerMember | None]:
        group = self._groups.find(group_id)
        return group, group.members.get(member_id) if group is not None else None

    # --- giving up ----------------------------------------------------------------------------------------------------

    def await_revocation(self, group_id: str, member: ConsumerMember, at_least_ms: int = 0) -> None:
        """Others wait for what it was told to give up, no longer than it said that it takes."""
        name, timeout_ms = _revocation(group_id, member.id), max(member.rebalance_timeout_ms, at_least_ms)
        self._effects.remind(name, timeout_ms, partial(self._look_whether_revoked, group_id, member.id))

    def _look_whether_revoked(self, group_id: str, member_id: str) -> None:
        group, member = self._find(group_id, member_id)
        if group is None or member is None:
            return
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._expel(group, member, Kind.UNREVOKED, "")

    # --- classic members ----------------------------------------------------------------------------------------------

    def await_step(self, group_id: str, member: ConsumerMember, step: str) -> None:
        """It takes no longer than it said. To be told again, or of another step, gives it no more time."""
        key = group_id, member.id
        if self._awaited.get(key) != member.epoch:
            self._awaited[key] = member.epoch
            self._effects.remind(
                _step(*key), member.rebalance_timeout_ms, partial(self._look_whether_stepped, key, step)
            )

    def has_stepped(self, group_id: str, member_id: str) -> None:
        if self._awaited.pop((group_id, member_id), None) is not None:
            self._effects.forget(_step(group_id, member_id))

    def _look_whether_stepped(self, key: tuple[str, str], step: str) -> None:
        del self._awaited[key]
        group, member = self._find(*key)
        if group is not None and member is not None:
            self._expel(group, member, Kind.SILENT, f"did not {step} in time")

    # --- the end ------------------------------------------------------------------------------------------------------

    def forget(self, group_id: str, member_id: str) -> None:
        """It is gone for good: that is committed. Somebody may have its id again."""
        if self._find(group_id, member_id)[1] is None:
            self._expire_ms.pop((group_id, member_id), None)
            self._effects.forget(_session(group_id, member_id))
            self._effects.forget(_revocation(group_id, member_id))
            self.has_stepped(group_id, member_id)

    def end(self, count_a_turn: int) -> Iterator[None]:
        while self._expire_ms:
            for _ in range(min(count_a_turn, len(self._expire_ms))):
                key, _ = self._expire_ms.popitem()
                self._effects.forget(_session(*key))
                self._effects.forget(_revocation(*key))
                self.has_stepped(*key)
            yield


def _session(group_id: str, member_id: str) -> Hashable:
    return "consumer session", group_id, member_id


def _revocation(group_id: str, member_id: str) -> Hashable:
    return "consumer revocation", group_id, member_id


def _step(group_id: str, member_id: str) -> Hashable:
    return "classic member's step", group_id, member_id
