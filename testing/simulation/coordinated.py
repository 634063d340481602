"""What the dimensions of groups and of transactions share: users of a coordinator that is looked at, and goes while they work.

`Coordinated` looks at the coordinators' state now and then; `ReadingGroup` is one whose users are a group that reads a topic.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from ottla.broker import internal_topics
from ottla.broker.internal_topics import GROUPS, InternalTopic
from ottla.runtime.errors import ErrorCode
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.chained import KINDS_OF_CHAINS, SPLIT
from ottla.testing.simulation.consumer_members import SETTINGS
from ottla.testing.simulation.course import Run
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.group_members import GroupMember
from ottla.testing.simulation.groups import Group
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.roles import leader_of
from ottla.testing.simulation.shards import check_shards, missing_shards
from ottla.testing.simulation.workload import BrokenPromise

COORDINATORS = 2
"""The partitions of the groups' topic, and of the transactions'."""
RESTLESS_S = 4.5
LOOKS_S = (0.2, 0.9)
FAULTS = ("kill", "kill", "pause", "isolate", SPLIT, SPLIT)
SMALL = {
    "cleanup.policy": "compact",
    "segment.index.bytes": "96",
    "index.interval.bytes": "0",
    "min.cleanable.dirty.ratio": "0.01",
}
_INTERNAL_TOPIC = internal_topics.internal_topic


def in_small_segments(name: str, config: ServerConfig) -> InternalTopic | None:
    """Internal topics whose segments are full soon, and are compacted."""
    topic = _INTERNAL_TOPIC(name, config)
    return topic._replace(configs={**topic.configs, **SMALL}) if topic is not None else None


class Coordinated(Dimension):
    """Users of a coordinator."""

    limits: Sequence[tuple[Any, str, Any]] = ((internal_topics, "internal_topic", in_small_segments),)
    least_ms = 6_000

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._looks = 0

    def kinds(self) -> Mapping[str, FaultKind]:
        return KINDS_OF_CHAINS

    async def _require(self, topic: str) -> None:
        """An internal topic. Every broker could be asked first; one is."""
        run, told = self.run, list[int]()
        process = run.cluster.nodes[1].process
        assert process is not None
        process.run(run.servers[1].context.internal_topics.require, topic, told.append, 5_000)
        await run.until(lambda: "" if told else "it waits", f"there is {topic}", 10)
        if told != [ErrorCode.NONE]:
            raise BrokenPromise(f"{topic} could not be made: {told}")
        run.keep(topic)

    async def _look(self) -> None:
        """A user: whether the coordinators' state is what their partitions say."""
        while True:
            await asyncio.sleep(self.rng.uniform(*LOOKS_S))
            self._looks += check_shards(self.run)

    def missing(self) -> str:
        return missing_shards(self.run) or self._missing()

    def _missing(self) -> str:
        """As `missing`, once everybody coordinates who should."""
        return ""


class ReadingGroup(Coordinated, ABC):
    """A group whose members share a topic's partitions, and whose coordinator is killed, paused, isolated or cut off."""

    settings: Mapping[str, str] = {
        "offsets.topic.num.partitions": str(COORDINATORS),
        "group.initial.rebalance.delay.ms": "150",
        "offsets.retention.check.interval.ms": "300",
        **SETTINGS,
    }
    place: ClassVar[int]
    """The partition of groups that has this one."""
    _group: Group

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._to_read: dict[int, int] = {}

    @property
    @abstractmethod
    def _now_members(self) -> Sequence[GroupMember]:
        """The processes of now."""

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        """Of its coordinator, whoever that is then."""
        leader = leader_of(GROUPS, self.place)
        for _ in range(self.rng.randint(0, 2)):
            kind, at_ms = self.rng.choice(FAULTS), self.rng.randrange(600, until_ms - 300)
            yield Fault(at_ms, kind, (leader,), self.rng.randrange(100, min(until_ms - at_ms, 3_500)))

    async def _make_topics(self, run: Run, topic: str, partitions: int) -> None:
        await self._require(GROUPS)
        await run.create_topic(topic, partitions, **self.length.topics)

    # --- once all has healed ------------------------------------------------------------------------------------------

    def _missing(self) -> str:
        return self._members_missing() or self._records_missing()

    def _members_missing(self) -> str:
        """Nobody joins, all are of one generation or have come to one epoch, and every partition has its reader."""
        members = self._now_members
        generations = {each.generation for each in members}
        owned = sorted(index for each in members for index in each.positions)
        if len(generations) > 1 or -1 in generations or owned != list(range(self._group.partitions)):
            return f"members are in generations {generations} and read {owned}"
        return ""

    def _records_missing(self) -> str:
        for index, done in enumerate(self._group.processed):
            if done < self._to_read.setdefault(index, self._group.end(index)):
                return f"{done} of {index} were processed, {self._to_read[index]} are there"
        return ""

    def progress(self) -> Mapping[str, int]:
        return {f"processed of {index}": count for index, count in enumerate(self._group.processed)}

    async def check(self) -> None:
        self._looks += check_shards(self.run)
        self._check_commits()

    def _check_commits(self) -> None:
        name, found = self._group.name, self._group.coordinator()
        assert found is not None
        said = {place.partition: each.offset for place, each in found[1].offsets.of_group(name)}
        for index, offset in self._group.committed.items():
            if said.get(index, -1) < offset:
                raise BrokenPromise(f"{name}: {offset} of {index} was committed, {said.get(index)} is there")
