"""A user who moves the replicas of `nomads` from broker to broker: moves that begin, overtake each other and are given up, leaders
that are sent back to the first replica, on four brokers, with throttles at times, and brokers that are stopped in order meanwhile.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from ottla.broker.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.broker.wire.messages.alter_partition_reassignments_response import AlterPartitionReassignmentsResponse
from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest
from ottla.broker.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.client import Unreachable
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.roles import follower_of, leader_of
from ottla.testing.simulation.stops import STOP, stopping
from ottla.testing.simulation.workload import History

NOMADS, PARTITIONS = "nomads", 2
BROKERS = (1, 2, 3, 4)
ENDS = "a move ends when its new replicas are in sync"
SHAPE = "a partition is what can be"


class Moves(Dimension):
    name = "moves"
    one_in = 5
    plain_brokers = 1

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._pause_s = rng.choice((0.1, 0.3, 0.8))
        self._throttled = {}
        if rng.randrange(2):  # more than the producers write, or nobody would ever catch up
            self.settings = {f"{who}.replication.throttled.rate": "6000" for who in ("leader", "follower")}
            self._throttled = {f"{who}_replication_throttled_replicas": "*" for who in ("leader", "follower")}
            self.heal_s = 40.0  # where one leads both and two are new in each, they catch up by 2 KB a second
        beside = Random()
        beside.setstate(rng.getstate())  # what it draws changes nothing of what the user does
        self._stops = list(_stops(beside))
        self._over, self._has_ended = asyncio.Event(), False
        self._seen: dict[int, PartitionView] = {}
        self.ended = self.begun = self.given_up = 0

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        return self._stops

    def kinds(self) -> Mapping[str, FaultKind]:
        return stopping(self.run.cluster)

    async def prepare(self) -> None:
        await self.run.create_topic(NOMADS, PARTITIONS, retention_ms="-1", **self._throttled)
        for index in range(PARTITIONS):
            self.run.produce(History(NOMADS, index), 0.06)
        self.run.invariants.on_metadata.append(self._look)

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        return [self._move()]

    async def _move(self) -> None:
        client, rng = self.run.client(), self.rng
        # Soon again: what has just begun is given up, or replaced.
        while not await self._is_over_after(rng.choice((0.01, 0.05, self._pause_s, self._pause_s, 3 * self._pause_s))):
            what = rng.random()
            try:
                if what < 0.15:
                    await client.ask_any(ElectLeadersRequest(0, None), ElectLeadersResponse)
                    continue
                # Two replicas at least: power is cut where all are in sync, and with one replica that loses records.
                target = None if what < 0.45 else rng.sample(BROKERS, rng.choice((2, 2, 3, 3, 4)))
                moved = [ReassignablePartition(self._one_to_move(target is None), target)]
                request = AlterPartitionReassignmentsRequest(1000, True, [ReassignableTopic(NOMADS, moved)])
                answer = await client.ask_any(request, AlterPartitionReassignmentsResponse)
            except Unreachable:
                continue
            if not answer.error_code and answer.responses[0].partitions[0].error_code == ErrorCode.NONE:
                self.begun += target is not None
                self.given_up += target is None
        self._has_ended = True

    def _one_to_move(self, is_under_way: bool) -> int:
        under_way = [index for index, view in self._seen.items() if view.adding]
        return self.rng.choice(under_way if is_under_way and under_way else range(PARTITIONS))

    async def _is_over_after(self, pause_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), pause_s)
        return self._over.is_set()

    def _look(self) -> None:
        topic = self.run.invariants.metadata.topics_by_name.get(NOMADS)
        for index, view in topic.partitions.items() if topic is not None else ():
            before = self._seen.get(index)
            self._seen[index] = view
            if before is view or before is None:
                continue
            self._check_shape(index, view)
            if view.partition_epoch == before.partition_epoch + 1:
                self._check_end(index, before, view)

    def _check_shape(self, index: int, view: PartitionView) -> None:
        replicas = set(view.replicas)
        is_sound = (
            len(replicas) == len(view.replicas) == len(view.directories)
            and replicas.issuperset((*view.isr, *view.adding, *view.removing))
            and (view.leader < 0 or view.leader in view.isr)
        )
        if not is_sound:
            self.run.invariants.violated(SHAPE, f"{NOMADS}-{index}: {view}")

    def _check_end(self, index: int, before: PartitionView, view: PartitionView) -> None:
        """A replica that has come to stay must have the records: those that had them may go in the same moment."""
        arrived = set(view.target).difference(view.adding) - set(before.replicas).difference(before.adding)
        self.ended += bool(arrived)
        if not arrived <= set(view.isr):
            self.run.invariants.violated(ENDS, f"{NOMADS}-{index}: {arrived} came, in sync are {view.isr}")

    def missing(self) -> str:
        """No leader changes after this: what one that is new has committed it does not know at once, and all is read back."""
        self._over.set()
        topic = self.run.invariants.metadata.topics_by_name[NOMADS]
        moving = [index for index, view in topic.partitions.items() if view.adding or view.removing]
        return f"partitions {moving} move still" if moving or not self._has_ended else ""

    def counts(self) -> Mapping[str, int]:
        return {"moves begun": self.begun, "moves ended": self.ended, "moves given up": self.given_up}


def _stops(rng: Random) -> Iterable[Fault]:
    """Whoever leads or follows one that moves is stopped in order: its leaders are to be elsewhere, and elsewhere changes."""
    for _ in range(rng.choice((0, 1, 2))):
        who = rng.choice((leader_of, leader_of, follower_of))(NOMADS, rng.randrange(PARTITIONS))
        yield Fault(rng.randrange(200, 4_000), STOP, (who,), rng.randrange(400, 1_800))


DIMENSION = Moves
