"""Whatever work the loop begins with, its turn is timed from there."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.links.connection import LinkConnection
from ottla.broker.network.routing import RouteTable
from ottla.broker.network.server import NetworkServer
from ottla.quorum.core_driver import CoreDriver
from ottla.quorum.raft.events import Ticked
from ottla.runtime.loop_watch import LoopWatch
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate
from ottla.runtime.timers import LoopTimers
from tests.unit.broker.network.conftest import ECHO, Peer, Turns, frame


def clients_bytes(watch: LoopWatch) -> None:
    data = frame(ECHO)
    peer = Peer(turns=Turns(watch))
    peer.connection.get_buffer(-1)[: len(data)] = data
    peer.connection.buffer_updated(len(data))


def what_a_client_left_for_the_next_turn(watch: LoopWatch) -> None:
    Peer(turns=Turns(watch)).connection.resume_soon()


def the_end_of_a_mute(watch: LoopWatch) -> None:
    Peer(turns=Turns(watch)).connection._unmute()


def another_brokers_answer(watch: LoopWatch) -> None:
    timers = LoopTimers(asyncio.get_running_loop(), watch)
    link = LinkConnection("test", timers, 1000, lambda: None, cast(Any, lambda *_: None))
    link.connection_made(Peer().transport)
    link.get_buffer(-1)[:2] = b"\0\0"
    link.buffer_updated(2)


def timers_that_are_due(watch: LoopWatch) -> None:
    LoopTimers(asyncio.get_running_loop(), watch)._run_due()


def an_event_of_the_quorum(watch: LoopWatch) -> None:
    core: Any = SimpleNamespace(next_deadline_ms=lambda: None)
    driver = CoreDriver(core, lambda failure: None, watch)
    driver.start(lambda instruction: None, cast(Any, ()))
    driver.handle(Ticked())  # which fails, after its turn began


def a_visitor(watch: LoopWatch) -> None:
    class Client:
        def close(self) -> None: ...

    server = NetworkServer(loop_watch=watch)
    server.limits = server.limits.__class__(connections_max=0)
    routes: Any = RouteTable([])
    counters: Any = Peer().connection.counters
    server._welcome(routes, counters, cast(Any, Client()), ("10.0.0.1", 1))


@pytest.mark.parametrize(
    "work",
    [
        clients_bytes,
        what_a_client_left_for_the_next_turn,
        the_end_of_a_mute,
        another_brokers_answer,
        timers_that_are_due,
        an_event_of_the_quorum,
        a_visitor,
    ],
)
def test_work_begins_a_turn_that_ends(work: Callable[[LoopWatch], None]) -> None:
    async def program(loop: SimulationLoop) -> None:
        watch = LoopWatch(loop.time, stacks=False)
        watch.start()
        work(watch)
        assert watch.is_open
        await asyncio.sleep(0.001)
        assert not watch.is_open
        assert watch.turns.percentiles((1.0,)) == [0.0]
        watch.stop()

    simulate(program, 1)
