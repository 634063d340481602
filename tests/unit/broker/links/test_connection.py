"""How a connection to another broker ends, and what that says of it."""

import socket

import pytest

from ottla.broker.links.connection import CLOSED, LOOKS, LinkConnection
from tests.unit.broker.fake_timers import FakeTimers
from tests.unit.broker.network.conftest import FakeTransport

STALL_MS = 5_000


class Bench:
    def __init__(self, transport: FakeTransport | None = None) -> None:
        self.timers = FakeTimers()
        self.lost: list[tuple[str, bool]] = []
        self.link = LinkConnection(
            "follower",
            self.timers,
            STALL_MS,
            lambda: None,
            lambda reason, by_peer: self.lost.append((reason, by_peer)),
        )
        self.link.connection_made(transport or FakeTransport())


def test_the_end_of_the_stream_is_known_before_the_connection_is_closed() -> None:
    bench = Bench()
    bench.link.eof_received()
    assert bench.lost == [(CLOSED, True)]
    bench.link.connection_lost(None)
    assert len(bench.lost) == 1


@pytest.mark.parametrize("error", [None, ConnectionResetError("reset")])
def test_a_connection_that_breaks_was_closed_by_the_other_end(error: Exception | None) -> None:
    bench = Bench()
    bench.link.connection_lost(error)
    assert bench.lost == [(str(error or CLOSED), True)]


def test_the_end_of_the_stream_shows_before_the_loop_reads_of_it() -> None:
    ours, theirs = socket.socketpair()
    transport = FakeTransport()
    transport._extra["socket"] = ours  # type: ignore[attr-defined]  # as asyncio's transports keep it
    bench = Bench(transport)
    assert not bench.link.has_ended()
    theirs.sendall(b"records")
    assert not bench.link.has_ended()
    theirs.close()
    assert bench.link.has_ended()
    assert bench.lost == [], "the loop will come to it"
    ours.close()


def test_a_leader_that_only_does_not_answer_closed_nothing() -> None:
    bench = Bench()
    bench.link.request(1, 17, b"", lambda frame, position: None)
    bench.timers.advance(STALL_MS)
    assert bench.lost == [(f"no answer for {STALL_MS} ms", False)]


@pytest.mark.parametrize("asked_ms", [0, 1, 249, 499])
def test_a_stall_is_noticed_in_its_last_tenth(asked_ms: int) -> None:
    bench = Bench()
    bench.timers.advance(asked_ms)
    bench.link.request(1, 17, b"", lambda frame, position: None)
    bench.timers.advance(STALL_MS - STALL_MS // LOOKS)
    assert bench.lost == []
    bench.timers.advance(STALL_MS // LOOKS)
    assert len(bench.lost) == 1


def test_whoever_closes_it_here_hears_nothing() -> None:
    bench = Bench()
    bench.link.close()
    bench.link.connection_lost(None)
    assert bench.lost == []
