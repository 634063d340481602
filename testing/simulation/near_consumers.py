"""A consumer that reads where it is near (KIP-392): where its leader sends it, or from any replica, in sync or not, as one whose leader
sent it there long ago.

Whoever answers, it is given what is committed and nothing else (reading.py), is told of no high watermark beyond that, and is never sent
to a replica of which the leader knows that it is in sync no more.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import NamedTuple

from ottla.broker.wire.messages.fetch_response import PartitionData
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client
from ottla.testing.simulation.consumers import Consumer, Key, Leader, Leaders
from ottla.testing.simulation.invariants import Invariants
from ottla.testing.simulation.workload import BrokenPromise

Address = tuple[str, int]

NEAR_FOR_S = 1.0
"""metadata.max.age.ms: a client goes back to the leader then, and asks whether it is still near."""
SURE_AFTER_S = 0.5
"""What a broker reads in the metadata it does within that."""


class _Near(NamedTuple):
    address: Address
    until_s: float


class _Asked(NamedTuple):
    """What stood when a broker was asked: how far it had read the metadata, and who the consumer took for the leaders."""

    metadata: int
    at_s: float
    leaders: Mapping[Key, Leader]


class Departures:
    """Since when members of the ISRs of a topic are out of it, by offset of the metadata and by time."""

    def __init__(self, invariants: Invariants, topic: str, now_s: Callable[[], float]) -> None:
        self._invariants, self._topic, self._now_s = invariants, topic, now_s
        self._isrs: dict[int, tuple[int, ...]] = {}
        self._out: dict[tuple[int, int], tuple[int, float]] = {}
        invariants.on_metadata.append(self._look)

    def _look(self) -> None:
        topic, offset = self._invariants.metadata.topics_by_name.get(self._topic), self._invariants.metadata.offset
        for index, view in topic.partitions.items() if topic is not None else ():
            before = self._isrs.get(index, view.isr)
            self._isrs[index] = view.isr
            if before is not view.isr:
                for member in before:
                    if member not in view.isr:
                        self._out[index, member] = (offset, self._now_s())
                for member in view.isr:
                    self._out.pop((index, member), None)

    def is_known(self, index: int, member: int, offset: int, at_s: float) -> bool:
        """Whether it was out of the ISR for sure in the eyes of a broker that had read the metadata up to ``offset`` at ``at_s``."""
        left = self._out.get((index, member))
        return left is not None and left[0] <= offset and at_s - left[1] > SURE_AFTER_S


class NearConsumer(Consumer):
    """Reads `Consumer`'s partitions. ``wanders``: from any broker, without being sent there."""

    def __init__(
        self,
        clients: Callable[[], Client],
        invariants: Invariants,
        leaders: Leaders,
        keys: Iterable[Key],
        rng: Random,
        brokers: Mapping[int, Address],
        metadata_of: Callable[[int], int],
        departures: Departures,
        *,
        rack: str,
        wanders: bool,
        with_session: bool,
        read_committed: bool,
    ) -> None:
        """``metadata_of`` answers how far a broker has read the metadata, -1 while it does not run."""
        super().__init__(
            clients, invariants, leaders, keys, with_session=with_session, read_committed=read_committed, rack=rack
        )
        self.sent = self.read_near = 0
        self._rng = rng
        self._brokers = brokers
        self._numbers = {address: number for number, address in brokers.items()}
        self._metadata_of = metadata_of
        self._departures = departures
        self._wanders = wanders
        self._tells_epochs = rng.randrange(2) > 0
        self._near: dict[Key, _Near] = {}
        self._asked: dict[Address, _Asked] = {}

    def _asked_of(self, broker: Address) -> dict[Key, tuple[int, int]]:
        now_s = asyncio.get_running_loop().time()
        found: dict[Key, tuple[int, int]] = {}
        leaders: dict[Key, Leader] = {}
        self._asked[broker] = _Asked(self._metadata_of(self._numbers[broker]), now_s, leaders)
        for key, position in self.positions.items():
            leader, near = self._leaders.of(key), self._near.get(key)
            if leader is None:
                continue
            if near is not None and near.until_s <= now_s:
                del self._near[key]
                near = None
            if near is None and self._wanders and self._rng.randrange(4):
                address = self._rng.choice(list(self._brokers.values()))
                near = self._near[key] = _Near(address, now_s + NEAR_FOR_S)
            if (near.address if near is not None else leader.address) == broker:
                found[key] = (position, leader.epoch if self._tells_epochs else -1)
                leaders[key] = leader
        return found

    async def _take(
        self, client: Client, broker: Address, wanted: Mapping[Key, tuple[int, int]], topic: str, data: PartitionData
    ) -> bool:
        key = (topic, data.partition_index)
        leader, number = self._asked[broker].leaders[key], self._numbers[broker]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if leader.address != broker:
                self._near.pop(key, None)  # it has not come so far: the leader has
                return True
            if not self._tells_epochs and self._leads_no_more(key, number, leader.epoch):
                self._near.pop(key, None)
                return False
        fine = await super()._take(client, broker, wanted, topic, data)
        if not fine:
            self._near.pop(key, None)
            return False
        self._check(key, number, data)
        return True

    def _leads_no_more(self, key: Key, number: int, epoch: int) -> bool:
        """Whether a broker led once, in an epoch that is over. It answers as the follower that it is, which may have lost what it had
        written or not come as far as the leader after it; who tells the old epoch is refused instead."""
        view = self._invariants.metadata.topics_by_name[key[0]].partitions[key[1]]
        return (view.leader, view.leader_epoch) != (number, epoch)

    def _check(self, key: Key, number: int, data: PartitionData) -> None:
        topic = self._invariants.metadata.topics_by_name[key[0]]
        committed = self._invariants.committed_end(topic.id, key[1])
        if data.error_code == ErrorCode.NONE and data.high_watermark > committed:
            raise BrokenPromise(f"{key}: broker {number} tells of {data.high_watermark}, {committed} is committed")
        self.read_near += bool(data.records) and number != topic.partitions[key[1]].leader
        sent_to = data.preferred_read_replica
        if sent_to < 0:
            return
        asked = self._asked[self._brokers[number]]
        if self._departures.is_known(key[1], sent_to, asked.metadata, asked.at_s):
            raise BrokenPromise(f"{key}: broker {number} sends to {sent_to}, of which it knows that it is not in sync")
        self.sent += 1
        self._near[key] = _Near(self._brokers[sent_to], asyncio.get_running_loop().time() + NEAR_FOR_S)
