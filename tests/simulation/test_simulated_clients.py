"""What the simulation's own clients and faults go by: a mistake there ends a seed that the product does not."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.leave_group_request import LeaveGroupRequest
from ottla.quorum.metadata.views import NO_LEADER, PartitionView
from ottla.runtime.simulation.faults import Fault
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from ottla.testing.simulation.client import BrokerConnection, Client, Unreachable
from ottla.testing.simulation.consumer_members import ConsumerMember
from ottla.testing.simulation.consumers import Leader, Leaders
from ottla.testing.simulation.dimensions.unclean import COMES, GOING_NS, WAGERS, Unclean
from ottla.testing.simulation.group_members import GroupMember
from ottla.testing.simulation.migrants import CooperativeMigrant, EagerMigrant
from ottla.testing.simulation.pipelined_connection import PipelinedConnection
from ottla.testing.simulation.plan import HEARD_NS, FaultKind, Faults, _Suspect
from ottla.testing.simulation.roles import CONTROLLER
from tests.simulation.network_ends import Recorder, serve

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


class Resets(Recorder):
    """Closes with something unread, of which nobody waits for an answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        asyncio.get_running_loop().call_later(0.1, self.transport.abort)


def test_a_connection_that_was_reset_while_it_was_idle_counts_as_unreachable() -> None:
    """A link that was cut, and a machine that came back, reset it long before the next request."""

    async def program(loop: SimulationLoop) -> None:
        serve(loop, Resets)
        await asyncio.sleep(0.001)
        first, second = [await asyncio.open_connection("server", 9092) for _ in range(2)]
        one, many = BrokerConnection(*first), PipelinedConnection(*second)
        for _, each in (first, second):
            each.write(b"what nobody reads")
        await asyncio.sleep(1)
        many._error = None  # as in the moment before its reader hears of it
        with pytest.raises(Unreachable):
            await one.call(ApiVersionsRequest(), ApiVersionsResponse)
        with pytest.raises(Unreachable):
            await many.send(ApiVersionsRequest(), ApiVersionsResponse, 3)

    simulate(program, 1)


@pytest.mark.parametrize("kind", [EagerMigrant, CooperativeMigrant, ConsumerMember])
def test_a_member_reads_nothing_any_more_when_it_says_that_it_leaves(
    kind: type[GroupMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions may be another's before the answer is there."""
    told: list[object] = []

    async def asked(_: GroupMember, request: object, *__: object) -> Any:
        told.append(type(request))
        raise Unreachable

    monkeypatch.setattr(GroupMember, "_ask", asked)
    group = SimpleNamespace(
        name="g", topic="t", note_released=told.append, note_reading=lambda *_: None, note_held=lambda *_: None
    )
    member = kind(cast(Any, lambda: SimpleNamespace(close=lambda: None)), cast(Any, group), Random(1), None, 0.0)
    member._coordinator, member._id, member.generation = NODE, "m", 3
    asyncio.run(member._leave())
    assert told[0] == "m"
    assert told[1] in (LeaveGroupRequest, ConsumerGroupHeartbeatRequest)


@pytest.mark.parametrize(("written", "is_missed"), [(1, True), (2, False)])
def test_an_unclean_election_is_missed_once_nothing_that_the_controller_wrote_waits_for_voters(
    written: int, is_missed: bool
) -> None:
    """A controller that had no voters for a while commits all at once: the election may be the next record."""
    led = PartitionView(
        replicas=(1, 2), isr=(1,), leader=1, leader_epoch=3, partition_epoch=5, directories=(b"a" * 16, b"b" * 16)
    )
    there = SimpleNamespace(epoch=7, is_active=True, has_directory=lambda _: True)
    topic = SimpleNamespace(partitions={0: led})
    image = SimpleNamespace(offset=40, topics_by_name={WAGERS: topic}, brokers={2: there})
    violations: list[str] = []
    invariants = SimpleNamespace(
        metadata=image,
        quorum=SimpleNamespace(epoch=9),
        quorum_leader=3,
        violated=lambda invariant, _: violations.append(invariant),
    )
    server = SimpleNamespace(quorum=SimpleNamespace(next_offset=image.offset + written))
    loop, cluster = SimpleNamespace(now_ns=0), SimpleNamespace(running={3: server}.get)
    unclean = next(each for each in map(Unclean, map(Random, range(20))) if not each._is_asked_for)
    unclean.run = cast(Any, SimpleNamespace(loop=loop, invariants=invariants, cluster=cluster))
    unclean._look()
    topic.partitions[0] = structs.replace(led, leader=NO_LEADER, isr=())
    unclean._look()
    assert violations == []
    loop.now_ns += GOING_NS + 1
    unclean._look()
    assert violations == [COMES] * is_missed


@pytest.mark.parametrize(("parted", "is_waited_for"), [("node-1", True), ("node-4", True), ("node-3", False)])
def test_no_machine_is_replaced_until_the_controller_and_who_has_everything_have_heard_of_each_other(
    parted: str, is_waited_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their session may end first: then the one whose disk is gone leads."""
    monkeypatch.setattr(Faults, "_is_well", lambda *_: True)
    monkeypatch.setattr(Faults, "_is_shrinking_isrs", lambda *_: False)
    loop = SimpleNamespace(now_ns=0, trace=SimpleNamespace(event=lambda *_: None))
    topic = SimpleNamespace(partitions={0: SimpleNamespace(isr=(4, 5), replicas=(4, 5), leader=4)})
    image = SimpleNamespace(brokers={5: SimpleNamespace(epoch=57)}, topics_by_id={b"": topic})
    replaced = FaultKind(cast(Any, None), stops=True, loses=True, empties=True)
    cluster = SimpleNamespace(loop=loop, lives={5: 1}, nodes={})
    faults = Faults(
        cast(Any, cluster),
        lambda: cast(Any, image),
        lambda _: None,
        {"machine-is-new": replaced},
        lambda name: "node-1" if name == CONTROLLER else name,
    )
    isolated, machine = Fault(0, "isolate", (parted,), 700), Fault(0, "machine-is-new", ("node-5",), 700)

    def may_begin() -> bool:
        faults._suspect = None
        return faults._may_begin(machine)

    assert may_begin()
    faults._parted.update([parted])
    assert may_begin() is not is_waited_for
    faults._end(isolated, lambda: None)
    assert may_begin() is not is_waited_for
    loop.now_ns += HEARD_NS
    assert may_begin()
