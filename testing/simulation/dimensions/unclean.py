"""Leaders that were not in sync: a topic of two or three replicas that allows it, or a user who asks for it, and those who are in sync
die, or are cut off, just when one comes back that is not.

Exactly what the elected leader lacks may be gone, and what the one before it tells until it hears of that (committed.py). In all other
topics nothing may.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.broker.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.views import NO_LEADER, RECOVERED, PartitionView
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.chained import KINDS_OF_CHAINS, SESSION_MS, SPLIT
from ottla.testing.simulation.client import Unreachable
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.roles import follower_of, leader_of, other_follower_of
from ottla.testing.simulation.wagering import WageringProducer
from ottla.testing.simulation.workload import SMALL_SEGMENTS, History, create_topic

WAGERS = "wagers"
UNCLEAN = 1
COMES = "an unclean election comes where it is allowed"
GOING_NS = 500_000_000
"""A broker whose place its next process takes is there until all its partitions have been looked at, and is not elected: by a controller,
while there is one."""


class Unclean(Dimension):
    name = "unclean"
    one_in = 5

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._replicas, self._is_asked_for = rng.choice((2, 2, 3)), rng.randrange(3) == 0
        self._before: PartitionView | None = None
        self._is_over = False
        self._able: frozenset[tuple[int, int]] = frozenset()
        """Brokers, with their epochs, that could have led since nobody does."""
        self._gone = self._leaderless_ns = 0
        self._controller_epoch = -1

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        """One leaves the ISR, cut off for longer than a session; when it is back the others go."""
        rng, time_ms = self.rng, self.rng.randrange(100, 900)
        who = [leader_of(WAGERS, 0)] if self._replicas == 2 else [leader_of(WAGERS, 0), other_follower_of(WAGERS, 0)]
        away_ms = SESSION_MS + rng.randrange(300, 1_000)
        yield Fault(time_ms, rng.choice(("isolate", "pause", "kill")), (follower_of(WAGERS, 0),), away_ms)
        back_ms = time_ms + away_ms
        how = rng.choice(("kill", "kill", SPLIT)) if self._replicas == 2 else "kill"
        yield Fault(back_ms - rng.choice((5, 40, -15)), how, (who[0],), rng.randrange(1_900, until_ms - back_ms))
        for other in who[1:]:
            yield Fault(back_ms - 5, "kill", (other,), 200)

    def kinds(self) -> Mapping[str, FaultKind]:
        return KINDS_OF_CHAINS

    async def prepare(self) -> None:
        run = self.run
        run.invariants.partitions.losses.may_elect = lambda topic: topic == WAGERS
        run.invariants.on_metadata.append(self._look)
        allowed = {} if self._is_asked_for else {"unclean_leader_election_enable": "true"}
        settings = {**SMALL_SEGMENTS, "min_insync_replicas": "1", **allowed}
        await create_topic(run.client(), WAGERS, 1, self._replicas, **settings)
        run.keep(WAGERS)
        self._producer = WageringProducer(run.client(), History(WAGERS, 0), 0.05)
        run.add_producer(self._producer)

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        return [self._ask()] if self._is_asked_for else []

    async def _ask(self) -> None:
        """For a leader, whoever it is, as somebody does who has waited long enough."""
        client = self.run.client()
        request = ElectLeadersRequest(UNCLEAN, [TopicPartitions(WAGERS, [0])], timeout_ms=1_000)
        while not self._is_over:
            await asyncio.sleep(0.3)
            with contextlib.suppress(Unreachable):
                await client.ask_any(request, ElectLeadersResponse)

    def _look(self) -> None:
        image = self.run.invariants.metadata
        topic = image.topics_by_name.get(WAGERS)
        view, before = topic.partitions.get(0) if topic is not None else None, self._before
        self._before = view
        if view is None or before is None or self._is_asked_for or view.leader != NO_LEADER:
            self._able = frozenset()
            return
        able = frozenset((each, image.brokers[each].epoch) for each in view.replicas if _may_lead(image, view, each))
        if before.leader != NO_LEADER:
            self._gone, self._able = before.leader, frozenset(each for each in able if each[0] != before.leader)
            self._leaderless_ns = self.run.loop.now_ns
        if self._controller_epoch != self.run.invariants.quorum.epoch:  # perhaps there was none since
            self._controller_epoch, self._leaderless_ns = self.run.invariants.quorum.epoch, self.run.loop.now_ns
        self._able &= able
        if self._able and self.run.loop.now_ns - self._leaderless_ns > GOING_NS and self._all_is_committed(image):
            told = f"{self._gone} went, {sorted(self._able)} are there: {view}"
            self.run.invariants.violated(COMES, f"{WAGERS}-0: {told}")

    def _all_is_committed(self, image: MetadataImage) -> bool:
        """Nothing that the controller wrote waits for voters: it may be the election. After a while without them it comes all at once."""
        server = self.run.cluster.running(self.run.invariants.quorum_leader)
        return server is not None and server.quorum is not None and server.quorum.next_offset == image.offset + 1

    def missing(self) -> str:
        self._is_over = True
        view = self.run.invariants.metadata.topics_by_name[WAGERS].partitions[0]
        return "" if view.leader_recovery_state == RECOVERED else f"{WAGERS}-0 recovers still: {view}"

    def counts(self) -> Mapping[str, int]:
        return {
            "unclean elections": self.run.invariants.partitions.losses.unclean_elections,
            "records lost as permitted": self.run.lost,
            "producers begun anew": self._producer.begun,
        }


def _may_lead(image: MetadataImage, view: PartitionView, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active and broker.has_directory(view.directory_of(broker_id))


DIMENSION = Unclean
