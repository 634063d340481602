"""What all connections hold together: where it is bounded, who waits, and who is served all the same."""

import struct

import pytest

from ottla.broker.network.budget import MemoryBudget
from ottla.broker.network.receive import CLASSES, ReceivePool
from tests.unit.broker.network.conftest import ANY_SIZE, ECHO, LARGE, PARK, PRODUCE, Peer, Turns, frame

MEGABYTE = 1 << 20


class House:
    """Clients of one node."""

    def __init__(self, bytes_max: int = 2 * MEGABYTE) -> None:
        self.budget = MemoryBudget(bytes_max)
        self.pool = ReceivePool(self.budget)
        self.turns = Turns()

    def peer(self) -> Peer:
        return Peer(ANY_SIZE, self.pool, self.turns)


def half(size: int, came: int) -> bytes:
    """The beginning of a frame."""
    return struct.pack(">i", size) + frame(ECHO, bytes(came))[4 : came + 4]


def test_what_is_held_is_given_back_to_the_last_byte() -> None:
    house = House()
    peers = [house.peer() for _ in range(5)]
    for number, peer in enumerate(peers):
        peer.receive(frame(PARK) + b"".join(frame(LARGE) for _ in range(2)) + half(5 * MEGABYTE, 300_000))
        peer.connection.hold(1_000)
        if number % 2:
            peer.parked[0].respond([b""])
            peer.transport.unsent = 100_000
            peer.connection.pause_writing()
    assert house.budget.used > 5 * 300_000
    for peer in peers:
        peer.connection.connection_lost(None)
    house.turns.end_all()
    assert house.budget.used == 0
    assert not house.budget.is_full


def test_a_large_request_that_comes_takes_what_came() -> None:
    house = House(-1)
    peer = house.peer()
    for came in range(1, 21):
        peer.receive(half(100 * MEGABYTE, MEGABYTE - 4) if came == 1 else bytes(MEGABYTE), chunk=100_000)
        assert came * MEGABYTE <= house.budget.used <= max(2 * came * MEGABYTE, CLASSES[-1]) + 200_000


def test_when_memory_is_short_more_of_a_large_request_waits_for_room() -> None:
    house = House()
    holder, waiting = house.peer(), house.peer()
    holder.receive(half(50 * MEGABYTE, 3 * MEGABYTE))
    assert house.budget.is_full
    waiting.receive(frame(ECHO, bytes(MEGABYTE)))
    assert not waiting.transport.reading
    assert waiting.connection.owned_bytes <= CLASSES[1]
    assert waiting.seen == []
    holder.connection.connection_lost(None)
    house.budget.let_in()
    house.turns.end_all()
    assert waiting.transport.reading
    waiting.receive(waiting.unread)
    assert waiting.seen == [bytes(MEGABYTE)]


def test_when_memory_is_short_small_requests_are_served() -> None:
    house = House()
    holder, others = house.peer(), [house.peer() for _ in range(50)]
    holder.receive(half(50 * MEGABYTE, 3 * MEGABYTE))
    before = house.budget.used
    for peer in others:
        for _ in range(3):
            peer.receive(frame(ECHO, bytes(10_000)), chunk=7_000)
    assert house.budget.used == before
    assert [len(peer.seen) for peer in others] == [3] * 50


def test_when_all_wait_for_one_another_one_may_finish() -> None:
    house = House()
    coming = [house.peer() for _ in range(3)]
    for peer in coming:
        peer.unread = frame(ECHO, bytes(3 * MEGABYTE))

    def deliver() -> None:
        """A piece of each in turn, for as long as anybody is read."""
        house.turns.end_all()
        while any(peer.unread and peer.transport.reading for peer in coming):
            for peer in coming:
                left = peer.unread
                peer.unread = left[:100_000]
                peer.read()
                peer.unread += left[100_000:]
            house.turns.end_all()

    deliver()
    assert [peer.transport.reading for peer in coming] == [False] * 3
    house.budget.let_in()
    house.turns.end_all()
    assert [peer.transport.reading for peer in coming] == [False] * 3
    house.budget.let_one_in()
    deliver()
    assert sum(len(peer.seen) for peer in coming) == 1
    for _ in range(4):
        house.budget.let_in()
        house.budget.let_one_in()
        deliver()
    assert [len(peer.seen) for peer in coming] == [1] * 3
    assert not house.budget.is_full


def test_answers_that_are_not_taken_count() -> None:
    house = House()
    peer = house.peer()
    peer.full_bytes = 100_000
    peer.receive(b"".join(frame(LARGE, correlation_id=n) for n in range(100)))
    assert len(peer.answers) == 1
    assert house.budget.used >= peer.large_bytes
    assert peer.connection.stuck_at() == ("does not take its answers", len(peer.transport.written))
    peer.take_answers()
    peer.turns.end_all()
    assert len(peer.answers) == 1, "the next one is not looked at before the first is taken"
    peer.connection.connection_lost(None)
    assert house.budget.used == 0


@pytest.mark.parametrize(
    ("key", "size", "counted"),
    [(PARK, 20_000, 8 * 20_000), (PARK, 2_000, 8 * 2_000), (PARK, 1_000, 0), (PRODUCE, 20_000, 0)],
)
def test_a_request_that_waits_counts_decoded_unless_it_is_small_or_written(key: int, size: int, counted: int) -> None:
    """A Produce that waits for acknowledgements left its records in the log."""
    house = House()
    peer = house.peer()
    header = len(frame(key)) - 4
    peer.receive(frame(key, bytes(size - header)))
    assert house.budget.used == counted
    peer.parked[0].respond([b""])
    assert house.budget.used == 0


def test_who_is_to_blame_when_memory_is_short() -> None:
    house = House()
    peer = house.peer()
    assert peer.connection.stuck_at() is None
    peer.receive(half(MEGABYTE, 100))
    assert peer.connection.stuck_at() is None, "so little is no reason"
    peer.receive(bytes(400_000))
    first = peer.connection.stuck_at()
    assert first is not None
    assert "does not send the rest" in first[0]
    assert peer.connection.stuck_at() == first
    peer.receive(b"x")
    assert peer.connection.stuck_at() != first, "it goes on"


def test_small_requests_that_wait_by_the_hundred_count() -> None:
    house = House()
    peers = [house.peer() for _ in range(10)]
    for peer in peers:
        peer.receive(b"".join(frame(PARK, bytes(2_000)) for _ in range(200)))
    assert house.budget.is_full
    for peer in peers:
        peer.connection.connection_lost(None)
    assert house.budget.used == 0


def test_no_connection_keeps_more_unsent_than_is_counted() -> None:
    house = House()
    assert house.peer().transport.high == 16 << 10
