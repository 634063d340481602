"""When a socket is read: one turn at a time, and never while anything else stands against it."""

import random

import pytest

from ottla.broker.network.budget import MemoryBudget
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.receive import CHUNK_BYTES, ReceivePool
from tests.unit.broker.network.conftest import ECHO, PARK, Peer, Turns, frame

MEGABYTE = 1 << 20


def test_a_connection_takes_one_piece_of_a_large_request_a_turn(peer: Peer) -> None:
    data = peer.unread = frame(ECHO, bytes(3 * MEGABYTE)) + frame(ECHO, b"after")
    turns = 0
    while peer.unread:
        before = len(peer.unread)
        peer.read()
        assert 0 < before - len(peer.unread) <= CHUNK_BYTES
        turns += 1
        peer.turns.end()
    assert turns >= len(data) // CHUNK_BYTES
    peer.turns.end_all()
    assert peer.seen == [bytes(3 * MEGABYTE), b"after"]


def test_a_read_that_takes_all_there_is_pauses_nothing(peer: Peer) -> None:
    for _ in range(100):
        peer.unread = frame(ECHO, bytes(10_000))
        peer.read()
    assert peer.transport.pauses == 0


def test_others_come_between_the_pieces_of_one(peer: Peer) -> None:
    turns = peer.turns
    other = Peer(pool=peer.pool, turns=turns)
    peer.unread = frame(ECHO, bytes(2 * MEGABYTE))
    for _ in range(4):
        peer.read()
        other.unread = frame(ECHO, b"small")
        other.read()
        turns.end()
    assert len(other.seen) == 4
    assert peer.seen == []


def test_a_client_whose_turn_comes_again_is_not_read_while_it_takes_no_answers(peer: Peer) -> None:
    peer.unread = frame(ECHO, bytes(MEGABYTE))
    peer.read()
    peer.connection.pause_writing()
    peer.turns.end_all()
    assert not peer.transport.reading
    peer.connection.resume_writing()
    peer.turns.end_all()
    assert peer.transport.reading


def test_a_client_that_takes_its_answers_is_not_read_before_its_turn(peer: Peer) -> None:
    peer.unread = frame(ECHO, bytes(MEGABYTE))
    peer.read()
    peer.connection.pause_writing()
    peer.connection.resume_writing()
    assert not peer.transport.reading
    peer.turns.end_all()
    assert peer.transport.reading


def test_room_in_the_budget_does_not_undo_the_end_of_a_turn_nor_a_turn_the_want_of_room() -> None:
    budget = MemoryBudget(MEGABYTE)
    peer = Peer(pool=ReceivePool(budget))
    budget.add(2 * MEGABYTE)
    peer.unread = frame(ECHO, bytes(3 * MEGABYTE))
    peer.read()
    peer.turns.end_all()
    peer.read()
    peer.turns.end_all()
    assert not peer.transport.reading, "its turn came again, and there is still no room"
    budget.add(-2 * MEGABYTE)
    budget.let_in()
    assert not peer.transport.reading, "there is room, and it is not its turn"
    peer.turns.end_all()
    assert peer.transport.reading


def test_a_connection_that_is_closed_between_its_turns_is_left_alone(peer: Peer) -> None:
    peer.unread = frame(ECHO, bytes(MEGABYTE))
    peer.read()
    peer.connection.abort()
    peer.connection.connection_lost(None)
    peer.turns.end_all()
    assert peer.connection.owned_bytes == 0
    assert not peer.transport.reading


def test_a_connection_that_cannot_go_on_stops_nobody_else(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    other = Peer(pool=peer.pool, turns=peer.turns)
    for each in (peer, other):
        each.unread = frame(ECHO, bytes(MEGABYTE))
        each.read()
    del peer.connection._inbox
    peer.turns.end()
    assert peer.transport.aborted
    assert "our mistake" in caplog.text
    assert other.transport.reading


class Storm:
    """A client, and everything that can come between it and its answers, in any order."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.budget = MemoryBudget(8 * MEGABYTE)
        self.turns = Turns()
        limits = ConnectionLimits(in_flight_max=6, unsent_bytes_max=200_000, write_buffer_bytes=50_000)
        self.peer = Peer(limits, ReceivePool(self.budget), self.turns)
        self.peer.unread = b"".join(
            frame(
                self.rng.choice((ECHO, PARK)),
                bytes(self.rng.choice((0, 10, 20_000, 400_000))),
                correlation_id=number,
            )
            for number in range(30)
        )
        self.write_paused = self.memory_is_short = False

    def step(self) -> None:
        self.rng.choice((self.read, self.read, self.turns.end, self.answer, self.turn_tap, self.turn_memory))()

    def read(self) -> None:
        self.peer.read(self.rng.choice((1_000, 1 << 30)))

    def answer(self) -> None:
        waiting = [request for request in self.peer.parked if not request.answered]
        if waiting:
            self.rng.choice(waiting).respond([b""])

    def turn_tap(self) -> None:
        self.write_paused = not self.write_paused
        connection = self.peer.connection
        (connection.pause_writing if self.write_paused else connection.resume_writing)()

    def turn_memory(self) -> None:
        self.memory_is_short = not self.memory_is_short
        self.budget.add(9 * MEGABYTE if self.memory_is_short else -9 * MEGABYTE)
        self.budget.let_in()

    def pass_over(self) -> None:
        """Nothing is in the way any more."""
        if self.write_paused:
            self.turn_tap()
        if self.memory_is_short:
            self.turn_memory()
        for _ in range(100):
            self.budget.let_in()
            self.answer()
            self.turns.end_all()
            self.peer.read()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_goes_nothing_is_read_against_a_reason_and_all_is_answered(seed: int) -> None:
    storm = Storm(seed)
    peer = storm.peer
    for _ in range(1_000):
        storm.step()
        assert not (peer.transport.reading and (storm.write_paused or peer.connection.in_flight >= 6))
    storm.pass_over()
    assert not peer.unread
    assert [number for number, _ in peer.answers] == list(range(30))
    assert peer.transport.reading
    peer.connection.connection_lost(None)
    assert storm.budget.used == 0
