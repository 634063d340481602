"""What the simulation's own clients and faults go by: a mistake there ends a seed that the product does not."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.testing.simulation.client import Client
from ottla.testing.simulation.consumers import Leader, Leaders
from ottla.testing.simulation.plan import Faults, _Suspect

TOPIC = "flights"
NODE = ("node-1", 9092)
LOST = _Suspect(node=4, broker_epoch=57, life=1)


class EmptyAtFirst(Client):
    """The first broker that is asked has yet to hear of the topic."""

    def __init__(self) -> None:
        self.asked = 0

    async def topic(self, name: str) -> Any:
        self.asked += 1
        led = [SimpleNamespace(partition_index=0, leader_id=1, leader_epoch=0)]
        return SimpleNamespace(partitions=led if self.asked > 1 else []), {1: NODE}


def test_leaders_are_asked_for_again_where_a_broker_has_yet_to_hear_of_a_topic() -> None:
    client = EmptyAtFirst()
    leaders = Leaders(client, {TOPIC: 1})
    assert [asyncio.run(leaders._ask()) for _ in range(2)] == [False, True]
    assert leaders.of((TOPIC, 0)) == Leader(NODE, 0)


@pytest.mark.parametrize(
    ("epoch", "fenced", "isr", "is_cleared"),
    [
        (57, False, (1,), False),  # a leader that heard of it a moment ago may take it in again
        (57, True, (1,), True),
        (57, True, (1, 4), False),
        (133, False, (1, 4), True),
    ],
)
def test_nobody_relies_on_a_lost_machine_once_it_is_out_and_fenced_or_registered_anew(
    epoch: int, fenced: bool, isr: tuple[int, ...], is_cleared: bool
) -> None:
    view = SimpleNamespace(isr=isr, elr=())
    image = SimpleNamespace(
        brokers={4: SimpleNamespace(epoch=epoch, fenced=fenced)},
        topics_by_id={b"": SimpleNamespace(partitions={0: view})},
    )
    faults = Faults(cast(Any, SimpleNamespace(loop=None)), lambda: cast(Any, image), lambda _: None, {})
    faults._suspect = LOST
    assert faults._is_cleared() is is_cleared
