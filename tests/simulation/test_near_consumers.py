"""Who may answer a near consumer OFFSET_OUT_OF_RANGE: a replica that does not lead, and nobody who leads."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.client import Client
from ottla.testing.simulation.consumers import Key, Leader, Leaders
from ottla.testing.simulation.invariants import Invariants
from ottla.testing.simulation.near_consumers import Departures, NearConsumer
from ottla.testing.simulation.workload import BrokenPromise

TOPIC = "flights"
FIRST, SECOND = ("node-1", 9092), ("node-2", 9092)
OUT_OF_RANGE = FetchResponse(
    responses=[
        FetchableTopicResponse(
            topic=TOPIC, partitions=[PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)]
        )
    ]
)


class Outdated(Exception):
    """The consumer asks anew who leads."""


class WentOn(Exception):
    """The consumer asked again, of those it knows."""


class KnownLeaders(Leaders):
    def __init__(self, leader: Leader) -> None:
        self.leader = leader

    def of(self, key: Key) -> Leader | None:
        return self.leader

    def outdated(self) -> None:
        raise Outdated


class Always(Random):
    """Draws the same each time."""

    def __init__(self, drawn: int) -> None:
        super().__init__(0)
        self._drawn = drawn

    def randrange(self, *_: Any) -> int:
        return self._drawn


def ask_second(
    known: Leader, *, leads: tuple[int, int], tells_epochs: bool, wanders: bool = False, later: Leader | None = None
) -> None:
    """Node 2 is asked once and has not so much. ``leads``: who does in which epoch by the metadata; ``later``: who is known to while the
    answer is on its way."""
    leaders, asked = KnownLeaders(known), list[Any]()

    async def call(*request: Any) -> FetchResponse:
        asked.append(request)
        if len(asked) > 1:
            raise WentOn
        leaders.leader = later or known
        return OUT_OF_RANGE

    view = SimpleNamespace(leader=leads[0], leader_epoch=leads[1], isr=(leads[0],))
    topic = SimpleNamespace(id=b"t" * 16, partitions={0: view})
    metadata = SimpleNamespace(topics_by_name={TOPIC: topic}, offset=1)
    invariants = cast(Invariants, SimpleNamespace(metadata=metadata, on_metadata=[]))
    consumer = NearConsumer(
        lambda: cast(Client, SimpleNamespace(call=call)),
        invariants,
        leaders,
        [(TOPIC, 0)],
        Always(int(tells_epochs)),
        {2: SECOND},
        lambda number: 1,
        Departures(invariants, TOPIC, lambda: 0.0),
        rack="a",
        wanders=wanders,
        with_session=False,
        read_committed=False,
    )
    asyncio.run(consumer.tasks([SECOND])[0])


@pytest.mark.parametrize("leads", [(1, 1), (2, 1), (-1, 1)])
def test_who_led_once_may_have_less_where_no_epoch_is_told(leads: tuple[int, int]) -> None:
    with pytest.raises(Outdated):
        ask_second(Leader(SECOND, 0), leads=leads, tells_epochs=False)


def test_a_leader_has_what_was_read_where_no_epoch_is_told() -> None:
    with pytest.raises(BrokenPromise, match="OFFSET_OUT_OF_RANGE"):
        ask_second(Leader(SECOND, 0), leads=(2, 0), tells_epochs=False)


def test_who_led_once_refuses_an_old_epoch_before_anything_else() -> None:
    with pytest.raises(BrokenPromise, match="OFFSET_OUT_OF_RANGE"):
        ask_second(Leader(SECOND, 0), leads=(1, 1), tells_epochs=True)


def test_who_was_asked_as_a_follower_may_have_less_though_it_leads_by_now() -> None:
    with pytest.raises(WentOn):
        ask_second(Leader(FIRST, 0), later=Leader(SECOND, 1), leads=(2, 1), tells_epochs=True, wanders=True)
