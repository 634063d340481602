"""Copy jobs that read, write and commit in transactions, while they die, sleep and fence one another, and coordinators and leaders go.

Whatever is committed of what they wrote is held against what they did (copies.py). Once all has healed they copy to the end, and no
transaction is open anywhere when they are gone.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from ottla.broker.coordinator.decisions.groups.offset_store import Place
from ottla.broker.coordinator.placement import partition_of
from ottla.broker.internal_topics import GROUPS, TRANSACTIONS
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.chained import SPLIT
from ottla.testing.simulation.committed_readers import CommittedReader
from ottla.testing.simulation.coordinated import COORDINATORS, RESTLESS_S, Coordinated
from ottla.testing.simulation.copiers import NEW, OLD, Copier, Job
from ottla.testing.simulation.copies import ENDED, Copies
from ottla.testing.simulation.roles import CONTROLLER, leader_of
from ottla.testing.simulation.shards import check_shards
from ottla.testing.simulation.violations import InvariantViolation
from ottla.testing.simulation.workload import History

SOURCE, TARGET, GROUP = "orders", "invoices", "copiers"
ENDED_S = 5.0
FAULTS = ("kill", "kill", "kill", "pause", "isolate", SPLIT)


def transactional_id(source: int) -> str:
    """Of those who copy that partition."""
    return f"copier {source}"


class Transactions(Coordinated):
    name = "transactions"
    one_in = 5
    in_brief = True
    settings: Mapping[str, str] = {
        "offsets.topic.num.partitions": str(COORDINATORS),
        "transaction.state.log.num.partitions": str(COORDINATORS),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }
    source, target, group, deserter = SOURCE, TARGET, GROUP, "deserter"
    pace = 1
    """How many times as long producers take: what is there must be copied in the end."""
    _copies: Copies
    _deserter: Copier

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._sources, self._targets = rng.randint(1, 2), rng.randint(1, 2)
        self._rivals = [rng.randint(1, 2) for _ in range(self._sources)]
        self._copiers: list[Copier] = []
        self._readers: list[CommittedReader] = []
        self._to_copy: dict[int, int] = {}

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        """Of whoever has a part in a transaction then."""
        offices = (
            leader_of(TRANSACTIONS, partition_of(transactional_id(0), COORDINATORS)),
            leader_of(GROUPS, partition_of(self.group, COORDINATORS)),
            leader_of(self.target, 0),
            CONTROLLER,
        )
        for _ in range(self.rng.randint(0, 2)):
            kind, at_ms = self.rng.choice(FAULTS), self.rng.randrange(400, until_ms - 300)
            yield Fault(at_ms, kind, (self.rng.choice(offices),), self.rng.randrange(100, min(until_ms - at_ms, 3_500)))

    async def prepare(self) -> None:
        run = self.run
        for name in (GROUPS, TRANSACTIONS):
            await self._require(name)
        await run.create_topic(self.source, self._sources, **self.length.topics)
        await run.create_topic(self.target, self._targets, **self.length.topics)
        self._copies = Copies(run, self.target, self._targets, self._sources)
        run.invariants.on_committed.append(self._copies.follow)
        for source in range(self._sources):
            run.produce(History(self.source, source), self.pace * min(2 * self.length.producing_s, 0.15), batch=2)
            self._hire(source)
        job = self._job(self.deserter, 0)
        rng = Random(self.rng.getrandbits(64))
        self._deserter = Copier(run, self._copies, job, rng.choice((OLD, NEW)), rng, share=self.length.share)
        for index in range(self._targets):
            self._readers.append(CommittedReader(run, self._copies, index, Random(self.rng.getrandbits(64))))

    def _job(self, name: str, source: int) -> Job:
        return Job(name, self.group, partition_of(self.group, COORDINATORS), self.source, source)

    def _hire(self, source: int) -> None:
        """Those who copy that partition."""
        job = self._job(transactional_id(source), source)
        for number in range(self._rivals[source]):
            versions, rng = self.rng.choice((OLD, NEW)), Random(self.rng.getrandbits(64))
            copier = Copier(self.run, self._copies, job, versions, rng, share=self.length.share, is_first=not number)
            self._copiers.append(copier)

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._look()
        yield from self._work()
        for reader in self._readers:
            yield reader.run()
        yield self._deserter.desert()

    def _work(self) -> Iterable[Coroutine[Any, Any, None]]:
        for copier in self._copiers:
            yield copier.run(RESTLESS_S * self.length.share)

    # --- once all has healed ------------------------------------------------------------------------------------------

    def _missing(self) -> str:
        invariants = self.run.invariants
        topic_id = invariants.metadata.topics_by_name[self.source].id
        for source, done in enumerate(self._copies.committed):
            due = self._to_copy.setdefault(source, invariants.committed_end(topic_id, source))
            if done < due:
                return f"{done} of {source} are copied, {due} are there"
        return ""

    def progress(self) -> Mapping[str, int]:
        return {f"copied of {source}": done for source, done in enumerate(self._copies.committed)}

    async def check(self) -> None:
        """Nobody copies any more: what is open is aborted when its time is up."""
        await self._until_ended()
        offsets = [self._committed(source) for source in range(self._sources)]
        self._copies.check(offsets)
        for index, reader in enumerate(self._readers):
            await self._read_to_the_end(index, reader)
        check_shards(self.run)

    async def _until_ended(self) -> None:
        until_s = self.run.loop.time() + ENDED_S
        while found := self._copies.still_open() or self._unstable():
            if self.run.loop.time() > until_s:
                raise InvariantViolation(ENDED, found)
            await asyncio.sleep(0.05)

    def _unstable(self) -> str:
        """Where somebody's last stable offset is not the end."""
        for name in (self.target, GROUPS):
            for index, view in self.run.invariants.metadata.topics_by_name[name].partitions.items():
                for number in view.replicas:
                    partition = self.run.partition(number, name, index)
                    if partition is None or partition.log.last_stable_offset < partition.log.log_end_offset:
                        return f"{name}-{index} on {number}"
        return ""

    def _committed(self, source: int) -> int:
        views = self.run.invariants.metadata.topics_by_name[GROUPS].partitions
        broker = self.run.servers[views[partition_of(self.group, COORDINATORS)].leader]
        found = broker.context.groups.shard_of(self.group).offsets.get(self.group, Place(self.source, source))
        return found.offset if found is not None else 0

    async def _read_to_the_end(self, index: int, reader: CommittedReader) -> None:
        topic_id = self.run.invariants.metadata.topics_by_name[self.target].id
        while reader.position < self.run.invariants.committed_end(topic_id, index):
            await reader.step()
            await asyncio.sleep(0.01)
        reader.check()

    def counts(self) -> Mapping[str, int]:
        attempts = self._copies.attempts
        return {
            "transactions begun": len(attempts),
            "transactions committed": sum(each.told is True for each in attempts),
            "transactions aborted": sum(not any(each.ended.values()) for each in attempts if each.ended),
            "copiers fenced": sum(each.fenced for each in self._copiers),
            "read at read_committed": sum(len(each.read) for each in self._readers),
            "looks at shards": self._looks,
        }


DIMENSION = Transactions
