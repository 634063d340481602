"""Eligible leaders are kept (KIP-966), and nodes go in such an order that nobody is left in sync: killed while others are away, stopped in
order, cut off and back. In half of the runs a user changes min.insync.replicas meanwhile.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.broker.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.quorum.controller.decisions import features
from ottla.quorum.controller.decisions.elr import ELR_VERSION
from ottla.quorum.metadata.views import NO_LEADER, PartitionView
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.client import Unreachable
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.plan import FaultKind
from ottla.testing.simulation.roles import follower_of, leader_of
from ottla.testing.simulation.stops import STOP, stopping

HAS_ALL = "who is eligible has what is committed"
ON = {**features.SUPPORTED, ELR_VERSION: features.Levels(0, 1, 1)}


class Eligible(Dimension):
    name = "eligible"
    one_in = 4
    limits: Sequence[tuple[Any, str, Any]] = ((features, "SUPPORTED", ON),)

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._seen: dict[tuple[bytes, int], PartitionView] = {}
        self._looked_at = -1
        self._changes, self._is_over = rng.randrange(2) == 0, False
        self.eligible = self.elected = self.last_known = 0

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        """A follower goes, then the leader, before it is back."""
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            place = "flights", rng.randrange(3)
            time_ms = rng.randrange(0, until_ms - 3_500)
            for who in (follower_of(*place), leader_of(*place), leader_of(*place)):
                kind = rng.choice(("kill", "kill", "isolate", STOP))
                yield Fault(time_ms, kind, (who,), rng.randint(300, 2_000))
                time_ms += rng.choice((10, 300, 900, 1_700))

    def kinds(self) -> Mapping[str, FaultKind]:
        return stopping(self.run.cluster)

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        return [self._change_minimum()] if self._changes else []

    async def _change_minimum(self) -> None:
        """Of how many must be in sync for a record to be committed."""
        client = self.run.client()
        while not self._is_over:
            await asyncio.sleep(self.rng.choice((0.05, 0.3, 1)))
            change = AlterableConfig("min.insync.replicas", 0, self.rng.choice("12"))
            request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(2, "flights", [change])])
            with contextlib.suppress(Unreachable):
                await client.ask_any(request, IncrementalAlterConfigsResponse)

    def missing(self) -> str:
        self._is_over = True
        return ""

    async def prepare(self) -> None:
        self.run.invariants.on_metadata.append(self._look)

    def _look(self) -> None:
        image = self.run.invariants.metadata
        if image.offset == self._looked_at:
            return  # another node has come so far
        self._looked_at = image.offset
        for topic in image.topics_by_id.values():
            for index, view in topic.partitions.items():
                before = self._seen.get((topic.id, index))
                if before is view:
                    continue
                self._seen[topic.id, index] = view
                if before is not None:
                    self._compare(topic.name, (topic.id, index), before, view)

    def _compare(self, topic: str, key: tuple[bytes, int], before: PartitionView, view: PartitionView) -> None:
        came = [each for each in view.elr if each not in before.elr]
        self.eligible += len(came)
        self.elected += view.leader in before.elr and not before.isr
        self.last_known += view.leader != NO_LEADER and view.leader in before.last_known_elr
        brokers, committed = self.run.invariants.metadata.brokers, self.run.invariants.committed_end(*key)
        for each in came:
            replica = self.run.partition(each, topic, key[1]) if each in brokers and not brokers[each].fenced else None
            if replica is not None and replica.log.log_end_offset < committed:
                end = replica.log.log_end_offset
                self.run.invariants.violated(HAS_ALL, f"{topic}-{key[1]}: {each} has {end} of {committed}: {view}")

    def counts(self) -> Mapping[str, int]:
        return {
            "came to be eligible": self.eligible,
            "elected of those": self.elected,
            "led again who led last": self.last_known,
        }


DIMENSION = Eligible
