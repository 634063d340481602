"""What the members of a group may rely on, all together: held against everything that one of them is told."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.coordinator.decisions.groups.shard import GroupShard
from ottla.broker.coordinator.shard_host import ShardHost
from ottla.broker.internal_topics import GROUPS
from ottla.broker.wire.messages.fetch_response import PartitionData
from ottla.testing.simulation.course import Run
from ottla.testing.simulation.reading import check_answer
from ottla.testing.simulation.workload import BrokenPromise

ONE_OWNER = "a partition has one owner in a generation"
HANDED_OVER = "a partition is handed over when its owner has let it go"
STAYS = "what a group committed stays"
CERTAIN_SHARE = 0.75
"""Of a session: a broker's clock may be a tenth faster, and an answer takes its time."""
TIMERS = "a coordinator watches its members and nobody else"


class _Look(NamedTuple):
    """When a question was asked: who coordinated by the committed metadata, and what had been acknowledged."""

    epoch: int
    acknowledged: dict[int, int]


class _Held(NamedTuple):
    """What a member reads, and since when."""

    generation: int
    partitions: frozenset[int]


class _Reading(NamedTuple):
    """What a member of the consumer protocol reads, and when it was heard last."""

    heard_s: float
    partitions: frozenset[int]


class Group:
    """A group that reads one topic, and what its members have been told."""

    def __init__(self, run: Run, name: str, topic: str, partitions: int, place: int) -> None:
        """``place``: the partition that keeps it."""
        self.name, self.topic, self.partitions, self.place = name, topic, partitions, place
        self.processed = [0] * partitions
        """By partition: all below was processed."""
        self.committed: dict[int, int] = {}
        """By partition: the highest that a member was told is committed."""
        self.assignments = self.commits = self.twice = self.read_meanwhile = self.resets = 0
        self.generations: dict[int, dict[int, str]] = {}
        """By generation and partition: whose it is."""
        self._joined: dict[int, frozenset[str]] = {}
        """By generation: its members, as its leader was told."""
        self._held: dict[str, _Held] = {}
        """By id: cooperative members that read something."""
        self._reading: dict[str, _Reading] = {}
        self._run = run

    # --- what members are told ----------------------------------------------------------------------------------------

    def note_owner(self, member: str, generation: int, partitions: list[int]) -> None:
        """SyncGroup told a member that these are its."""
        owners = self.generations.setdefault(generation, {})
        for index in partitions:
            other = owners.setdefault(index, member)
            if other != member:
                story = f"{self.name}: {member} and {other} were told that {index} is theirs in generation {generation}"
                self._run.invariants.violated(ONE_OWNER, story)
        self.assignments += 1

    def note_members(self, generation: int, members: Iterable[str]) -> None:
        """The leader of a generation was told of them. A coordinator that died may have begun one of that number before."""
        self._joined[generation] = frozenset(members)

    def note_held(self, member: str, generation: int, partitions: Iterable[int]) -> None:
        """What a cooperative member reads since that generation."""
        self._held[member] = _Held(generation, frozenset(partitions))

    def note_handed_over(self, member: str, generation: int, partitions: list[int]) -> None:
        """A cooperative member begins to read these. Nobody else of its generation may have come to it with one of them, and not
        have been told yet."""
        for other in self._joined.get(generation, frozenset()) - {member}:
            held = self._held.get(other)
            both = held.partitions.intersection(partitions) if held is not None and held.generation < generation else ()
            if both:
                story = (
                    f"{self.name}: {member} was given {set(both)} in generation {generation}, {other} came with that"
                )
                self._run.invariants.violated(HANDED_OVER, story)

    @property
    def topic_id(self) -> bytes:
        return self._run.invariants.metadata.topics_by_name[self.topic].id

    def note_reading(self, member: str, partitions: Iterable[int], heard_s: float) -> None:
        """What a member of the consumer protocol reads, which had an answer to what it asked then."""
        self._reading[member] = _Reading(heard_s, frozenset(partitions))

    def note_released(self, member: str) -> None:
        """It reads nothing any more."""
        self._reading.pop(member, None)

    def note_given(self, member: str, partitions: list[int], session_s: float) -> None:
        """A member of the consumer protocol begins to read these. Who was heard of in less than a session cannot have been given up."""
        since_s = self._run.loop.time() - CERTAIN_SHARE * session_s
        for other, reading in self._reading.items():
            both = reading.partitions.intersection(partitions)
            if other != member and both and reading.heard_s > since_s:
                story = f"{self.name}: {member} was given {set(both)}, {other} reads that still"
                self._run.invariants.violated(HANDED_OVER, story)

    def note_reset(self, offsets: dict[int, int], *, is_new: bool) -> None:
        """An administrator was told, and there are no members. ``is_new``: the group was deleted before, with its generations."""
        self.processed = [offsets[index] for index in range(self.partitions)]
        self.committed = dict(offsets)
        self.resets += 1
        if is_new:
            self.generations, self._joined = {}, {}

    def note_committed(self, index: int, offset: int, before: int) -> None:
        """A commit was acknowledged. ``before``: what was acknowledged when it was sent. Only who reads a partition commits, from there on."""
        if offset < before:
            story = f"{self.name}: {before} of {index} was acknowledged, then {offset}"
            self._run.invariants.violated(STAYS, story)
        self.committed[index] = max(offset, self.committed.get(index, 0))
        self.commits += 1

    def is_led_in(self, index: int, epoch: int) -> bool:
        """Whether that is the newest leader epoch of a partition."""
        return self._run.invariants.metadata.topics_by_name[self.topic].partitions[index].leader_epoch == epoch

    def look(self, coordinator: tuple[str, int] | None) -> _Look:
        """Before OffsetFetch."""
        return _Look(coordinating_epoch(self._run, coordinator, self.place), dict(self.committed))

    def note_fetched(self, coordinator: tuple[str, int] | None, look: _Look, found: dict[int, int]) -> None:
        """What OffsetFetch told. A coordinator that does not know yet that it is none may tell of old times, as Kafka's."""
        if look.epoch < 0 or coordinating_epoch(self._run, coordinator, self.place) != look.epoch:
            return
        for index, offset in found.items():
            least = look.acknowledged.get(index, -1)
            if offset < least:
                self._run.invariants.violated(
                    STAYS, f"{self.name}: {least} of {index} was acknowledged, {offset} is told"
                )

    def process(self, position: int, data: PartitionData) -> int:
        """Records were fetched from a position on; the one that follows them."""
        index = data.partition_index
        following, found = check_answer(self._run.invariants, self.topic, position, data)
        if position > self.processed[index] and found:
            raise BrokenPromise(
                f"{self.name}: reads {index} on from {position}, only {self.processed[index]} were processed"
            )
        self.twice += sum(offset < self.processed[index] for _, offset in found)
        self.processed[index] = max(self.processed[index], following)
        return following

    def end(self, index: int) -> int:
        """What is committed of the topic's partition."""
        invariants = self._run.invariants
        return invariants.committed_end(invariants.metadata.topics_by_name[self.topic].id, index)

    # --- its coordinator ----------------------------------------------------------------------------------------------

    def coordinator(self) -> tuple[ShardHost, GroupShard] | None:
        """That of the broker that leads; None while it loads."""
        view = self._run.invariants.metadata.topics_by_name[GROUPS].partitions[self.place]
        server = self._run.servers.get(view.leader)
        found = hosts(server).get(self.place) if server is not None else None
        return found if found is not None and found[0].is_loaded else None


def coordinating_epoch(run: Run, address: tuple[str, int] | None, place: int) -> int:
    """In which a broker coordinates by what it knows, if that is so by what is committed too; else -1."""
    view = run.invariants.metadata.topics_by_name[GROUPS].partitions[place]
    if address is None or address not in run.cluster.brokers:
        return -1
    number = run.cluster.brokers.index(address) + 1
    partition = run.partition(number, GROUPS, place) if number == view.leader else None
    leader = partition.leader if partition is not None else None
    return leader.epoch if leader is not None and leader.epoch == view.leader_epoch else -1


def hosts(broker: Broker) -> dict[int, tuple[ShardHost, GroupShard]]:
    """The shards that a broker has, loaded or not."""
    return broker.context.groups._hosts
