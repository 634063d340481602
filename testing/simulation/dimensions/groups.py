"""Members of a consumer group that join, leave, die and are paused, while their coordinator is killed, paused or cut off.

Whatever they are told is held against what they were told before (groups.py). Once all has healed the group is whole again and
reads to the end, and its coordinator's state is what its partition says.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from ottla.broker import internal_topics
from ottla.broker.coordinator.placement import partition_of
from ottla.broker.internal_topics import GROUPS
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.chained import KINDS_OF_CHAINS, SPLIT
from ottla.testing.simulation.consumer_members import SETTINGS, ConsumerMember
from ottla.testing.simulation.cooperative_members import CooperativeMember
from ottla.testing.simulation.course import Run
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.dimensions.ledgers import in_small_segments
from ottla.testing.simulation.group_administrator import GroupAdministrator
from ottla.testing.simulation.group_clerk import GroupClerk
from ottla.testing.simulation.group_members import GroupMember
from ottla.testing.simulation.groups import TIMERS, Group
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.roles import leader_of
from ottla.testing.simulation.shards import check_shards, missing_shards
from ottla.testing.simulation.violations import InvariantViolation
from ottla.testing.simulation.workload import BrokenPromise, History

TOPIC = "departures"
COORDINATORS, PLACE = 2, 1
"""The partitions of groups, and the one to which the names belong."""
PARTITIONS = (2, 4)
MEMBERS = (2, 4)
NAMES = ("crew", "tower", "gate", "desk")
RESTLESS_S = 4.5
LOOKS_S = (0.2, 0.9)
FAULTS = ("kill", "kill", "pause", "isolate", SPLIT, SPLIT)


class Groups(Dimension):
    name = "groups"
    one_in = 3
    in_brief = True
    settings: Mapping[str, str] = {
        "offsets.topic.num.partitions": str(COORDINATORS),
        "group.initial.rebalance.delay.ms": "150",
        "offsets.retention.check.interval.ms": "300",
        **SETTINGS,
    }
    limits = ((internal_topics, "internal_topic", in_small_segments),)
    least_ms = 6_000
    _group: Group
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
        self._looks = 0
        self._to_read: dict[int, int] = {}

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        """Of its coordinator, whoever that is then."""
        leader = leader_of(GROUPS, PLACE)
        for _ in range(self.rng.randint(0, 2)):
            kind, at_ms = self.rng.choice(FAULTS), self.rng.randrange(600, until_ms - 300)
            yield Fault(at_ms, kind, (leader,), self.rng.randrange(100, min(until_ms - at_ms, 3_500)))

    def kinds(self) -> Mapping[str, FaultKind]:
        return KINDS_OF_CHAINS

    async def prepare(self) -> None:
        run = self.run
        await make_topic_of_groups(run)
        await run.create_topic(TOPIC, self._partitions, **self.length.topics)
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

    # --- the coordinator ----------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(*LOOKS_S))
            self._looks += check_shards(self.run)

    # --- once all has healed ------------------------------------------------------------------------------------------

    def missing(self) -> str:
        return missing_shards(self.run) or self._members_missing() or self._records_missing()

    def _members_missing(self) -> str:
        """Nobody joins, all are of one generation, and every partition has its reader."""
        generations = {each.generation for each in self._members}
        owned = sorted(index for each in self._members for index in each.positions)
        if len(generations) > 1 or -1 in generations or owned != list(range(self._partitions)):
            return f"members are in generations {generations} and read {owned}"
        return ""

    def _records_missing(self) -> str:
        for index, done in enumerate(self._group.processed):
            if done < self._to_read.setdefault(index, self._group.end(index)):
                return f"{done} of {index} were processed, {self._to_read[index]} are there"
        return ""

    def progress(self) -> Mapping[str, int]:
        processed = {f"processed of {index}": count for index, count in enumerate(self._group.processed)}
        return {**processed, "done by a clerk": self._clerk.done}

    async def check(self) -> None:
        self._looks += check_shards(self.run)
        self._check_commits()
        if self._kind is not ConsumerMember:
            self._check_reminders()

    def _check_commits(self) -> None:
        found = self._group.coordinator()
        assert found is not None
        said = {place.partition: each.offset for place, each in found[1].offsets.of_group(self._name)}
        for index, offset in self._group.committed.items():
            if said.get(index, -1) < offset:
                raise BrokenPromise(f"{self._name}: {offset} of {index} was committed, {said.get(index)} is there")

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


async def make_topic_of_groups(run: Run) -> None:
    """Every broker could be asked first; one is."""
    told: list[int] = []
    process = run.cluster.nodes[1].process
    assert process is not None
    process.run(run.servers[1].context.internal_topics.require, GROUPS, told.append, 5_000)
    await run.until(lambda: "" if told else "it waits", "there is a topic for groups", 10)
    if told != [ErrorCode.NONE]:
        raise BrokenPromise(f"the topic of groups could not be made: {told}")
    run.keep(GROUPS)


DIMENSION = Groups
