"""What copiers have done, all together, and what their topic may show of it: held against every record that is committed there.

A copier reads a partition of one topic, writes what it read to another and commits how far it has read, all in one transaction
(copiers.py). Each record says which attempt wrote it, so that it is known of each what ought to become of it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.replication.partition import Partition
from ottla.log.batch import headers
from ottla.log.errors import DamagedLogError
from ottla.log.records import decode_records, read_end_marker
from ottla.testing.simulation.course import Run

WHOLE = "each transaction is seen whole or not at all"
ONCE = "each record is copied once, in order"
FENCED = "only what its producer committed is seen"
STABLE = "the last stable offset does not pass an open transaction"
ENDED = "no transaction is left open"
OFFSETS = "what a transaction committed of a group stays"


@dataclass(eq=False)
class Attempt:
    """One transaction of a copier: ``outputs`` by partition of its topic, offsets of the source from ``first`` up to ``following``."""

    number: int
    source: int
    first: int
    following: int
    outputs: dict[int, list[int]]
    may_commit: bool = False
    """It asked for that, once at least."""
    told: bool | None = None
    """Whether it is committed, if it was told."""
    refused: bool = False
    """It asked for the commit once, and was told that it is fenced."""
    ended: dict[int, bool] = field(default_factory=dict)
    """By partition: whether a marker committed it there, or aborted it."""


class Copied(NamedTuple):
    """A record of the copiers' topic."""

    offset: int
    attempt: int
    source: int
    source_offset: int

    @classmethod
    def of(cls, offset: int, value: bytes | None) -> "Copied":
        return cls(offset, *map(int, (value or b"").split(b":")))


class Copies:
    """``committed``: by partition of the source, up to where a copier was told that it is committed."""

    def __init__(self, run: Run, topic: str, partitions: int, sources: int) -> None:
        self.topic, self.partitions = topic, partitions
        self.attempts: list[Attempt] = []
        self.committed = [0] * sources
        self.visible: dict[int, list[Copied]] = {index: [] for index in range(partitions)}
        """What is committed, as it was ended: not in the order of its offsets."""
        self._run = run
        self._open: dict[int, dict[int, list[Copied]]] = {index: {} for index in range(partitions)}
        """By partition and producer id."""
        self._ends = [0] * partitions
        self._seen: dict[tuple[int, int], int] = {}
        """By source and offset: the attempt that copied it."""

    # --- what copiers do ----------------------------------------------------------------------------------------------

    def begin(self, source: int, offsets: list[int], following: int) -> Attempt:
        outputs: dict[int, list[int]] = {}
        for offset in offsets:
            outputs.setdefault(offset % self.partitions, []).append(offset)
        self.attempts.append(Attempt(len(self.attempts), source, offsets[0], following, outputs))
        return self.attempts[-1]

    def note_committed(self, attempt: Attempt) -> None:
        attempt.told = True
        self.committed[attempt.source] = max(self.committed[attempt.source], attempt.following)

    def is_old(self, topic: str, index: int, epoch: int) -> bool:
        """A leader of that epoch does not know yet that it is none, and may lack what is committed."""
        return self._run.invariants.metadata.topics_by_name[topic].partitions[index].leader_epoch > epoch

    # --- what is committed of their topic -----------------------------------------------------------------------------

    def follow(self, partition: Partition, end: int) -> None:
        """The log of some replica is committed up to ``end``, further than it was."""
        if partition.topic != self.topic or end <= self._ends[partition.index]:
            return
        try:
            self._read(partition, self._ends[partition.index], end)
        except DamagedLogError:
            return  # another replica has it
        self._ends[partition.index] = end
        self._check_stable(partition)

    def _read(self, partition: Partition, start: int, end: int) -> None:
        index, offset = partition.index, start
        while offset < end:
            found = partition.log.read(offset, 1 << 20, end, minimum_one=True, wait=True)
            for at, header in headers(found.data):
                if header.base_offset < offset:
                    continue
                if header.is_control:
                    marker = read_end_marker(found.data, header, at)
                    if marker is not None:
                        self._end(index, self._open[index].pop(header.producer_id, []), committed=marker.committed)
                    continue
                written = self._open[index].setdefault(header.producer_id, [])
                written += [
                    Copied.of(each.offset, each.value) for each in decode_records(found.data, header, position=at)
                ]
            offset = found.next_offset

    def _end(self, index: int, written: list[Copied], *, committed: bool) -> None:
        for number in dict.fromkeys(each.attempt for each in written):
            attempt = self.attempts[number]
            attempt.ended[index] = committed
            self._check_end(index, attempt, [each.source_offset for each in written if each.attempt == number])
        if committed:
            self._check_once(index, written)
            self.visible[index] += written

    def _check_end(self, index: int, attempt: Attempt, found: list[int]) -> None:
        story = f"{self.topic}-{index}: transaction {attempt.number}"
        if len(set(attempt.ended.values())) > 1:
            self._violated(WHOLE, f"{story} is committed in some partitions, aborted in others: {attempt.ended}")
        if not attempt.ended[index]:
            if attempt.told:
                self._violated(WHOLE, f"{story} is aborted, its producer was told that it is committed")
        elif not attempt.may_commit or attempt.refused:
            self._violated(FENCED, f"{story} is committed, its producer did not ask for that or was refused")
        elif found != attempt.outputs.get(index):
            self._violated(WHOLE, f"{story} is committed with {found} instead of {attempt.outputs.get(index)}")

    def _check_once(self, index: int, written: Iterable[Copied]) -> None:
        for each in written:
            other = self._seen.setdefault((each.source, each.source_offset), each.attempt)
            if other != each.attempt:
                self._violated(ONCE, f"{each.source_offset} of {each.source} was copied by {other} and {each.attempt}")

    def first_open(self, index: int) -> int | None:
        """Where the earliest transaction begins that is open in a partition's committed records."""
        return min((written[0].offset for written in self._open[index].values() if written), default=None)

    def _check_stable(self, partition: Partition) -> None:
        self.check_stable(partition.index, partition.log.last_stable_offset, f"{partition}")

    def check_stable(self, index: int, stable: int, story: str) -> None:
        """Somebody says that all is decided up to there."""
        first = self.first_open(index)
        if first is not None and stable > first:
            self._violated(STABLE, f"{story}: it is {stable}, a transaction is open since {first}")

    def still_open(self) -> str:
        """What is not ended yet."""
        found = [
            f"{self.topic}-{index} from {first}"
            for index in self._open
            if (first := self.first_open(index)) is not None
        ]
        return ", ".join(found)

    # --- at rest ------------------------------------------------------------------------------------------------------

    def check(self, offsets: list[int]) -> None:
        """Nothing is open. ``offsets``: what the group has committed of each partition of the source."""
        for attempt in self.attempts:
            missing = [index for index in attempt.outputs if not attempt.ended.get(index)]
            if missing and (attempt.told or any(attempt.ended.values())):
                self._violated(WHOLE, f"transaction {attempt.number} is committed, and not in {missing}")
        for source, offset in enumerate(offsets):
            copied = sorted(each for of, each in self._seen if of == source)
            if copied != list(range(max(offset, 0))):
                self._violated(ONCE, f"{offset} of {source} is committed, copied were {copied}")
            if offset < self.committed[source]:
                self._violated(OFFSETS, f"{self.committed[source]} of {source} was committed, {offset} is told")
        for index in self.visible:
            self._check_order(index)

    def _check_order(self, index: int) -> None:
        last: dict[int, int] = {}
        for each in self.in_order(index):
            if each.source_offset <= last.get(each.source, -1):
                self._violated(ONCE, f"{self.topic}-{index}: {each} comes behind {last[each.source]} of its source")
            last[each.source] = each.source_offset

    def in_order(self, index: int) -> Iterator[Copied]:
        """As consumers at read_committed see a partition."""
        return iter(sorted(self.visible[index]))

    def _violated(self, invariant: str, story: str) -> None:
        self._run.invariants.violated(invariant, story)
