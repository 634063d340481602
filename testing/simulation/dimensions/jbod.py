"""Brokers with two log directories, of which one dies under them while the broker runs on (KIP-858). It comes back whole, or as a new disk
with nothing on it, when the node is started again. In half of the runs eligible leaders are kept (KIP-966), in half a user moves replicas
from directory to directory.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from ottla.broker.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.broker.wire.messages.alter_replica_log_dirs_response import AlterReplicaLogDirsResponse
from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.broker.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.quorum.controller.decisions import features
from ottla.quorum.metadata.views import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, NO_LEADER, PartitionView
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.faults import Fault, repair
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.testing.simulation.client import Unreachable
from ottla.testing.simulation.cluster import CLIENT_PORT, DATA
from ottla.testing.simulation.course import PARTITIONS, TOPIC
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.dimensions.eligible import ON
from ottla.testing.simulation.new_disks import renew
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.roles import follower_of, leader_of, other_follower_of

MORE = "/more"
FAILS, IS_NEW = "directory-fails", "directory-is-new"
UNCLEAN = 1
OFFICES = (leader_of, leader_of, follower_of, other_follower_of)


class Jbod(Dimension):
    name = "jbod"
    one_in = 5
    directories: Sequence[str] = (MORE,)

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._moves = rng.randrange(2) > 0
        self.limits = ((features, "SUPPORTED", ON),) if rng.randrange(2) else ()
        self.failed = self.new = self.moved = 0

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            duration_ms = rng.randrange(200, 2_500)
            who = rng.choice(OFFICES)(TOPIC, rng.randrange(PARTITIONS))
            yield Fault(
                rng.randrange(300, until_ms - duration_ms), rng.choice((FAILS, IS_NEW, IS_NEW)), (who,), duration_ms
            )

    def kinds(self) -> Mapping[str, FaultKind]:
        return {
            FAILS: FaultKind(self._fails, stops=True, may=self._has_placed_all),
            IS_NEW: FaultKind(self._is_new, stops=True, loses=True, empties=True),
        }

    def _has_placed_all(self, name: str) -> bool:
        """Of a replica whose directory it has not told it could not say whether it is lost. Where it was the last in sync nobody would
        lead before a person decides."""
        image, number = self.run.invariants.metadata, int(name.removeprefix("node-"))
        views = (view for topic in image.topics_by_id.values() for view in topic.partitions.values())
        return not any(view.directory_of(number) == DIRECTORY_UNASSIGNED for view in views if number in view.replicas)

    def _fails(self, loop: SimulationLoop, name: str) -> Callable[[], None]:
        """Every operation on it; a start of the node when it is repaired."""
        self.failed += 1
        node = loop.nodes[name]
        mend = node.platter.fail(MORE)

        def end() -> None:
            mend()
            node.kill()
            repair(loop, name, lambda: None)

        return end

    def _is_new(self, loop: SimulationLoop, name: str) -> Callable[[], None]:
        """As when it fails, and it is another disk that comes in its place."""
        self.new += 1
        platter, start = loop.nodes[name].platter, self._fails(loop, name)

        def end() -> None:
            loop.nodes[name].kill()
            with platter.sound():
                renew(platter, DATA, MORE, self.rng)
            start()

        return end

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        return [self._decide(), *([self._move()] if self._moves else [])]

    async def _decide(self) -> None:
        """A person: of a replica that was made when its broker had lost a directory, and that it had not told when it was stopped, it
        can only say that it may lie there. Nothing was written to it: whoever is elected lacks nothing."""
        client, invariants = self.run.client(), self.run.invariants
        while True:
            await asyncio.sleep(0.5)
            views = [
                TopicPartitions(topic.name, [index])
                for topic in invariants.metadata.topics_by_id.values()
                for index, view in topic.partitions.items()
                if self._waits_for_lost(view)
            ]
            if views:
                with contextlib.suppress(Unreachable):
                    await client.ask_any(ElectLeadersRequest(UNCLEAN, views, timeout_ms=1_000), ElectLeadersResponse)

    def _waits_for_lost(self, view: PartitionView) -> bool:
        """Also where all others of it were taken out before, after a power cut: who led last was, when its directory was said to be lost."""
        last = view.isr or view.elr or view.last_known_elr
        return view.leader == NO_LEADER and all(self._is_gone(each, view.directory_of(each)) for each in last)

    def _is_gone(self, number: int, directory_id: bytes) -> bool:
        """Or it is another disk, and whoever led with it knew that before the controller did: a person looks at the machine."""
        if directory_id[:15] == bytes(15):
            return directory_id == DIRECTORY_LOST
        broker = self.run.servers.get(number)
        roots = broker.storage.manager.roots if broker is not None else ()
        return bool(roots) and all(root.failure is None and root.directory_id != directory_id for root in roots)

    async def _move(self) -> None:
        client, rng = self.run.client(), self.rng
        while True:
            await asyncio.sleep(rng.choice((0.05, 0.3, 0.8)))
            number = rng.choice(list(self.run.cluster.nodes))
            moved = AlterReplicaLogDirTopic(TOPIC, [rng.randrange(PARTITIONS)])
            request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(rng.choice((DATA, MORE)), [moved])])
            with contextlib.suppress(Unreachable):
                where = (self.run.cluster.nodes[number].name, CLIENT_PORT)
                answer = await client.call(where, request, AlterReplicaLogDirsResponse)
                self.moved += answer.results[0].partitions[0].error_code == ErrorCode.NONE

    def counts(self) -> Mapping[str, int]:
        return {
            "directories failed": self.failed,
            "of them replaced": self.new,
            "moves between directories": self.moved,
        }


DIMENSION = Jbod
