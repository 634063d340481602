"""Members of a consumer group that join, leave, die and are paused, while their coordinator is killed, paused or cut off.

Whatever they are told is held against what they were told before (groups.py). Once all has healed the group is whole again and
reads to the end, and its coordinator's state is what its partition says.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from ottla.broker.coordinator.placement import partition_of
from ottla.testing.simulation.consumer_members import ConsumerMember
from ottla.testing.simulation.cooperative_members import CooperativeMember
from ottla.testing.simulation.coordinated import COORDINATORS, RESTLESS_S, ReadingGroup
from ottla.testing.simulation.group_administrator import GroupAdministrator
from ottla.testing.simulation.group_clerk import GroupClerk
from ottla.testing.simulation.group_members import GroupMember
from ottla.testing.simulation.groups import TIMERS, Group
from ottla.testing.simulation.violations import InvariantViolation
from ottla.testing.simulation.workload import BrokenPromise, History

TOPIC = "departures"
PLACE = 1
"""The partition of groups to which the names belong."""
PARTITIONS = (2, 4)
MEMBERS = (2, 4)
NAMES = ("crew", "tower", "gate", "desk")


class Groups(ReadingGroup):
    name = "groups"
    one_in = 5
    in_brief = True
    place = PLACE
    _clerk: GroupClerk
    _administrator: GroupAdministrator

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._name = rng.choice(NAMES)
        self._partitions, self._count = rng.randint(*PARTITIONS), rng.randint(*MEMBERS)
        self._statics = rng.choice((0, 0, 1, self._count))
        self._kind = rng.choice((GroupMember, CooperativeMember, ConsumerMember))
        if self._kind is not GroupMember:
            self._statics = (
                0  # one that dies between letting go and joining again leaves a partition to nobody, in Kafka too
            )
        self._reset_share = rng.choice((None, rng.uniform(0.2, 0.7)))
        self._present = self._count
        self._are_gone = asyncio.Event()
        self._is_reset = asyncio.Event()
        self._members: list[GroupMember] = []

    async def prepare(self) -> None:
        run = self.run
        await self._make_topics(run, TOPIC, self._partitions)
        producing_s = min(2 * self.length.producing_s, 0.2)
        for index in range(self._partitions):
            run.produce(History(TOPIC, index), producing_s * (index + 1), batch=2)
        self._group = Group(run, self._name, TOPIC, self._partitions, partition_of(self._name, COORDINATORS))
        rng = Random(self.rng.getrandbits(64))
        self._clerk = GroupClerk(run, run.client(), TOPIC, self._partitions, COORDINATORS, rng)
        self._administrator = GroupAdministrator(run.client(), Random(self.rng.getrandbits(64)))
        for number in range(self._count):
            instance_id = f"seat {number}" if number < self._statics else None
            rng = Random(self.rng.getrandbits(64))
            self._members.append(self._kind(run.client, self._group, rng, instance_id, self.length.share))
        await self._members[0].begin()

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._look()
        yield self._clerk.run()
        for member in self._members:
            yield self._work(member)
        if self._reset_share is not None:
            yield self._reset()

    async def _work(self, member: GroupMember) -> None:
        """In some runs all go once, so that their offsets can be reset."""
        restless_s = RESTLESS_S * self.length.share
        if self._reset_share is None:
            await member.run(restless_s)
            return
        reset_s = restless_s * self._reset_share
        with suppress(TimeoutError):
            async with asyncio.timeout(reset_s):
                await member.run(restless_s)
        await member.depart()
        self._present -= 1
        if not self._present:
            self._are_gone.set()
        await self._is_reset.wait()
        await member.run(restless_s - reset_s)

    async def _reset(self) -> None:
        await self._are_gone.wait()
        await self._administrator.reset(self._group)
        self._is_reset.set()

    # --- once all has healed ------------------------------------------------------------------------------------------

    @property
    def _now_members(self) -> Sequence[GroupMember]:
        return self._members

    def progress(self) -> Mapping[str, int]:
        return {**super().progress(), "done by a clerk": self._clerk.done}

    async def check(self) -> None:
        await super().check()
        if self._kind is not ConsumerMember:
            self._check_reminders()

    def _check_reminders(self) -> None:
        """A timer of somebody who is gone would be kept for ever, one that is missing would keep him."""
        found = self._group.coordinator()
        group = found[1].find(self._name) if found is not None else None
        if found is None or group is None:
            raise BrokenPromise(f"{self._name} is not there")
        due = {("session", self._name, each) for each in (*group.members, *group.pending)}
        odd = {name for name in found[0]._reminders if name[1] == self._name and name[0] == "session"} ^ due  # type: ignore[index]
        waiting = {("session", self._name, each) for each in (*group.joining, *group.syncing)}
        if odd - waiting:
            raise InvariantViolation(TIMERS, f"{odd} of {group.state} {sorted(group.members)}")

    def counts(self) -> Mapping[str, int]:
        group = self._group
        return {
            "generations of groups": len(group.generations),
            "assignments told": group.assignments,
            "offsets committed": group.commits,
            "processed in groups": sum(group.processed),
            "processed again": group.twice,
            "found by clerks": self._clerk.checked,
            "polls while they rebalanced": group.read_meanwhile,
            "resets of groups": group.resets,
            "looks at coordinators": self._looks,
        }


DIMENSION = Groups
