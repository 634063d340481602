"""A client that is alone has its answers at once; as soon as another comes, answers are gathered for the end of the turn."""

import asyncio
from collections.abc import Callable

import pytest

from ottla.runtime.loop_watch import LoopWatch
from tests.unit.broker.network.conftest import ECHO, PARK, Peer, Turns, frame


class Watched(Turns):
    """Turns of a loop that is watched, which end when the loop comes round."""

    def __init__(self) -> None:
        self.watch = LoopWatch(stacks=False)
        super().__init__(self.watch)


def run(program: Callable[[Watched], None]) -> None:
    async def main() -> None:
        turns = Watched()
        turns.watch.start()
        try:
            program(turns)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not turns.watch.is_open, "every turn ends"
        finally:
            turns.watch.stop()

    asyncio.run(main())


def send(peer: Peer, key: int = ECHO) -> None:
    peer.unread = frame(key)
    peer.read()


def alone(turns: Watched) -> Peer:
    """Who has sent something already."""
    peer = Peer(turns=turns)
    turns.turn.latest = peer.connection
    return peer


def test_who_is_alone_has_its_answers_with_its_bytes() -> None:
    def program(turns: Watched) -> None:
        peer = alone(turns)
        peer.unread = frame(ECHO) + frame(ECHO)
        peer.read()
        assert len(peer.transport.writes) == 1
        assert not turns.watch.is_open, "nothing is left for the turn's end"
        assert turns.watch.longest_s > 0, "but it was one"

    run(program)


def test_answers_of_several_leave_at_the_end_of_the_turn() -> None:
    def program(turns: Watched) -> None:
        first, second = alone(turns), Peer(turns=turns)
        send(second)
        send(first)
        assert first.transport.writes == second.transport.writes == []
        send(second)
        assert second.transport.writes == []

    run(program)


def test_what_others_are_answered_meanwhile_leaves_at_the_end_of_the_turn() -> None:
    """As when a follower's fetch commits what producers wait for."""

    def program(turns: Watched) -> None:
        follower, producer = alone(turns), Peer(turns=turns)
        send(producer, PARK)
        turns.turn.latest = follower.connection
        turns.watch.is_open = False
        follower.transport.on_written = lambda _: producer.parked[0].respond([b"committed"])
        send(follower)
        assert len(follower.transport.writes) == 1
        assert producer.transport.writes == []
        assert turns.watch.is_open

    run(program)


@pytest.mark.parametrize("closes", [False, True])
def test_who_closes_while_it_is_alone_leaves_nothing_open(closes: bool) -> None:
    def program(turns: Watched) -> None:
        peer = alone(turns)
        if closes:
            peer.transport.on_written = lambda _: peer.connection.close()
        peer.unread = b"\0\0\0\1?"
        peer.read()
        assert peer.transport.closing
        assert not turns.watch.is_open

    run(program)
