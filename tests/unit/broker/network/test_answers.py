"""Answers: in the order of the requests, together at the end of a turn, and before a close."""

import struct

import pytest

from ottla.broker.wire.messages.fetch_response import FetchResponse
from tests.unit.broker.network.conftest import (
    ECHO,
    LARGE,
    PARK,
    Peer,
    frame,
    one_warning,
    responses,
)


def test_answers_of_one_read_leave_in_one_write_in_request_order(peer: Peer) -> None:
    peer.receive(b"".join(frame(ECHO, b"%d" % n, correlation_id=n) for n in range(5)))
    assert peer.answers == [(n, b"%d" % n) for n in range(5)]
    assert len(peer.transport.writes) == 1


def test_a_parked_request_holds_back_the_answers_behind_it(peer: Peer) -> None:
    peer.receive(
        frame(ECHO, b"a", correlation_id=1) + frame(PARK, correlation_id=2) + frame(ECHO, b"c", correlation_id=3)
    )
    assert peer.answers == [(1, b"a")]
    peer.parked[0].respond([b"b"])
    assert peer.answers == [(1, b"a"), (2, b"b"), (3, b"c")]


def test_parked_requests_answered_backwards_leave_forwards(peer: Peer) -> None:
    peer.receive(b"".join(frame(PARK, correlation_id=n) for n in range(4)))
    for request in reversed(peer.parked):
        request.respond([b"%d" % request.correlation_id])
    assert [number for number, _ in peer.answers] == [0, 1, 2, 3]


def test_a_request_without_answer_behind_a_parked_one_stops_nothing(peer: Peer) -> None:
    peer.receive(b"".join(frame(PARK, correlation_id=n) for n in range(3)))
    first, second, third = peer.parked
    second.no_response()
    third.respond([b"c"])
    first.respond([b"a"])
    assert peer.answers == [(0, b"a"), (2, b"c")]
    assert peer.connection.in_flight == 0


def test_a_second_answer_is_refused(peer: Peer) -> None:
    peer.receive(frame(PARK))
    peer.parked[0].respond([b"a"])
    with pytest.raises(RuntimeError, match="answered twice"):
        peer.parked[0].respond([b"b"])
    with pytest.raises(RuntimeError, match="answered twice"):
        peer.parked[0].no_response()


def test_a_large_payload_is_written_as_it_was_given(peer: Peer) -> None:
    payload = bytes(100_000)
    peer.receive(frame(PARK, correlation_id=9))
    peer.parked[0].respond([b"head", payload])
    assert peer.transport.writes[-1][-1] is payload or peer.transport.writes[-1][-1] == payload
    assert len(peer.transport.writes[-1]) == 3
    assert peer.answers == [(9, b"head" + payload)]


def test_nothing_is_written_to_a_transport_that_closes(peer: Peer) -> None:
    peer.receive(frame(PARK))
    peer.transport.closing = True
    peer.parked[0].respond([b"x"])
    assert peer.answers == []


def test_responses_helper_reads_what_was_sent() -> None:
    assert responses(struct.pack(">ii", 5, 3) + b"x") == [(3, b"x")]


def test_an_answer_that_the_version_cannot_carry_closes_instead_of_hanging(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    peer.receive(frame(PARK, version=4))
    peer.parked[0].respond_message(FetchResponse(session_id=5))  # sessions came with version 7
    assert peer.transport.closing
    assert "session_id" in one_warning(caplog)


def test_answers_of_one_turn_leave_together_at_its_end(peer: Peer) -> None:
    peer.receive(frame(PARK, correlation_id=1) + frame(PARK, correlation_id=2))
    peer.unread = frame(ECHO, b"c", correlation_id=3)
    peer.read()
    peer.parked[0].respond([b"a"])
    peer.parked[1].respond([b"b"])
    assert peer.transport.writes == []
    peer.turns.end()
    assert len(peer.transport.writes) == 1
    assert peer.answers == [(1, b"a"), (2, b"b"), (3, b"c")]


def test_all_connections_plan_one_end_of_a_turn(peer: Peer) -> None:
    others = [Peer(pool=peer.pool, turns=peer.turns) for _ in range(5)]
    for each in others:
        each.unread = frame(ECHO, b"x")
        each.read()
    assert len(peer.turns.planned) == 1
    peer.turns.end()
    assert [len(each.transport.writes) for each in others] == [1] * 5


@pytest.mark.parametrize("is_parked", [False, True])
def test_a_large_answer_does_not_wait_for_the_end_of_the_turn(peer: Peer, is_parked: bool) -> None:
    peer.large_bytes = 100_000
    if is_parked:
        peer.receive(frame(PARK))
        peer.parked[0].respond([bytes(100_000)])
    else:
        peer.unread = frame(LARGE)
        peer.read()
    assert len(peer.transport.writes) == 1
    peer.turns.end_all()
    assert len(peer.transport.writes) == 1


def test_who_shuts_down_its_half_is_answered_what_it_asked(peer: Peer) -> None:
    peer.unread = frame(ECHO, b"last words")
    peer.read()
    peer.connection.eof_received()
    assert responses(peer.transport.written) == [(0, b"last words")]
    peer.connection.connection_lost(None)
    peer.turns.end_all()


def test_what_was_answered_in_the_turn_of_a_close_leaves_before_it(peer: Peer) -> None:
    peer.unread = frame(ECHO, b"a") + frame(PARK)
    peer.read()
    peer.connection.close()
    assert responses(peer.transport.written) == [(0, b"a")]
    peer.turns.end_all()


def test_a_broken_pipe_in_one_write_costs_nobody_else_the_answer(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    other = Peer(pool=peer.pool, turns=peer.turns)
    for each in (peer, other):
        each.unread = frame(ECHO, b"x")
        each.read()

    def fail(_: int) -> None:
        raise RuntimeError("the handler is closed")

    peer.transport.on_written = fail
    peer.turns.end()
    assert peer.transport.aborted
    assert "our mistake" in caplog.text
    assert other.answers == [(0, b"x")]
