"""A large request, which takes milliseconds to write down, is handled when the small ones of its turn were, and one a turn."""

import pytest

from ottla.broker.network.connection import Connection
from ottla.broker.network.receive import CHUNK_BYTES
from tests.unit.broker.network.conftest import ECHO, Peer, Turns, frame, responses

LARGE = bytes(4 * CHUNK_BYTES)


def peers(turns: Turns, count: int) -> list[Peer]:
    first = Peer(turns=turns)
    return [first, *(Peer(pool=first.pool, turns=turns) for _ in range(count - 1))]


def send(peer: Peer, *bodies: bytes) -> None:
    peer.unread += b"".join(frame(ECHO, body) for body in bodies)
    peer.read()


def read_whole(turns: Turns, *bulk: Peer) -> None:
    """Until each of them has its large request, in the same turn, and nothing is handled yet."""
    for each in bulk:
        each.unread = frame(ECHO, LARGE)
    while any(each.unread for each in bulk):
        turns.end()
        for each in bulk:
            each.read()
    assert not any(each.seen for each in bulk)


def test_a_small_request_passes_a_large_one_that_came_before_it_in_the_same_turn() -> None:
    turns = Turns()
    bulk, small = peers(turns, 2)
    read_whole(turns, bulk)
    send(small, b"a")
    assert (small.seen, bulk.seen) == ([b"a"], [])
    turns.end()
    assert bulk.seen == [LARGE]
    assert responses(bulk.transport.written) == [(0, LARGE)], "its answer does not wait for another turn"


def test_of_two_large_ones_the_second_is_of_the_next_turn_and_who_came_between_is_not_behind_it() -> None:
    turns = Turns()
    first, second, small = peers(turns, 3)
    read_whole(turns, first, second)
    turns.end()
    assert (first.seen, second.seen) == ([LARGE], [])
    turns.begin()
    send(small, b"a")
    assert small.seen == [b"a"]
    turns.end()
    assert second.seen == [LARGE]
    assert not turns.end()


def test_requests_of_one_client_stay_in_order_whatever_their_size() -> None:
    turns = Turns()
    (client,) = peers(turns, 1)
    bodies = [b"a", LARGE, b"b", LARGE, LARGE, b"c", bytes(CHUNK_BYTES - 100), b"d"]
    client.receive(b"".join(frame(ECHO, body) for body in bodies))
    assert client.seen == bodies


def test_it_is_not_read_on_while_it_waits_and_is_afterwards() -> None:
    turns = Turns()
    bulk, other = peers(turns, 2)
    read_whole(turns, other, bulk)
    send(bulk, b"behind")
    turns.end()
    assert (bulk.transport.reading, bulk.seen) == (False, [])
    turns.end()
    bulk.read()
    assert bulk.seen == [LARGE, b"behind"]


def test_a_broker_s_large_request_waits_for_nobody() -> None:
    turns = Turns()
    (broker,) = peers(turns, 1)
    broker.connection.comes_first = True
    broker.receive(frame(ECHO, LARGE))
    assert broker.seen == [LARGE]


@pytest.mark.parametrize("how", ["shuts its half down", "goes", "is closed", "is muted", "does not take its answers"])
def test_what_happens_to_it_while_it_waits(how: str) -> None:
    turns = Turns()
    first, bulk, small = peers(turns, 3)
    read_whole(turns, first, bulk)
    if how == "shuts its half down":
        bulk.connection.eof_received()
    elif how == "goes":
        bulk.connection.connection_lost(None)
    elif how == "is closed":
        bulk.connection.close()
    elif how == "is muted":
        bulk.connection._reading.stop(8)
    else:
        bulk.connection.pause_writing()
    turns.end_all()
    send(small, b"a")
    assert (first.seen, small.seen) == ([LARGE], [b"a"])
    assert bulk.seen == ([LARGE] if how == "shuts its half down" else [])
    if how == "is muted":
        bulk.connection._unmute()
    elif how == "does not take its answers":
        bulk.connection.resume_writing()
    turns.end_all()
    assert bulk.seen == ([] if how in ("goes", "is closed") else [LARGE])


def test_pieces_of_large_requests_are_read_in_every_turn_whoever_waits() -> None:
    turns = Turns()
    bulk = peers(turns, 5)
    for each in bulk:
        each.unread = frame(ECHO, LARGE)
    took = 0
    while not all(each.seen for each in bulk):
        for each in bulk:
            each.read()
        turns.end()
        took += 1
    pieces = -(-len(frame(ECHO, LARGE)) // CHUNK_BYTES)
    assert took == pieces + len(bulk) - 1, "five are read side by side, and handled one a turn"


def test_one_that_fails_leaves_the_next_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    first, second = peers(turns, 2)
    read_whole(turns, first, second)
    resume = Connection.resume

    def failing(connection: Connection, frames: int) -> None:
        if connection is first.connection:
            raise RuntimeError("a mistake of ours")
        resume(connection, frames)

    monkeypatch.setattr(Connection, "resume", failing)
    turns.end_all()
    assert first.transport.aborted
    assert second.seen == [LARGE]
