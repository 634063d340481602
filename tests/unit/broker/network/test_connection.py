"""One connection's bounds, whose it is, and what is left of it when it goes."""

import pytest

from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.principal import Principal
from ottla.broker.network.receive import ReceivePool
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route, RouteTable
from ottla.broker.network.turn import FRAMES_PER_TURN
from ottla.testing.garbage import left_by
from tests.unit.broker.network.conftest import (
    ECHO,
    FAIL,
    LARGE,
    PARK,
    PRODUCE,
    FakeTransport,
    MakePeer,
    Peer,
    Turns,
    frame,
    one_warning,
)


def test_a_handler_that_fails_costs_one_connection(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    peer.receive(frame(FAIL) + frame(ECHO, b"after"))
    assert peer.transport.closing
    assert peer.seen == []
    assert "a mistake of ours" in caplog.text


def test_parked_requests_are_told_when_the_connection_goes(peer: Peer) -> None:
    dropped: list[str] = []
    peer.receive(frame(PARK, correlation_id=1) + frame(PARK, correlation_id=2) + frame(PARK, correlation_id=3))
    first, second, third = peer.parked
    first.on_close(lambda: dropped.append("first"))
    first.on_close(lambda: dropped.append("first again"))
    second.on_close(lambda: dropped.append("second"))
    third.on_close(lambda: dropped.append("third"))
    third.respond([b"answered, though it still waits for the others"])
    peer.connection.connection_lost(None)
    assert dropped == ["first", "first again", "second"]
    assert peer.lost == [peer.connection]
    first.respond([b"too late"])  # dropped in silence
    assert peer.answers == []


def test_a_failed_request_drops_what_waits_and_closes(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    dropped: list[int] = []
    peer.receive(frame(PARK) + frame(PARK))
    peer.parked[1].on_close(lambda: dropped.append(1))
    peer.parked[0].fail_connection("acks=0 and the append failed")
    assert dropped == [1]
    assert peer.transport.closing
    assert "acks=0" in one_warning(caplog)


def test_in_flight_requests_are_bounded(make_peer: MakePeer) -> None:
    peer = make_peer(ConnectionLimits(in_flight_max=10))
    peer.receive(b"".join(frame(PARK, correlation_id=n) for n in range(25)))
    assert len(peer.parked) == 10
    assert not peer.transport.reading
    for request in peer.parked[:4]:
        request.respond([b""])
    peer.turns.end_all()
    assert not peer.transport.reading  # not before half of them are answered
    peer.parked[4].respond([b""])
    peer.turns.end_all()
    assert len(peer.parked) == 15  # the frames that had been read already went on, up to the bound
    assert not peer.transport.reading
    for _ in range(2):
        for request in peer.parked:
            if not request.answered:
                request.respond([b""])
        peer.turns.end_all()
    assert len(peer.parked) == 25
    assert peer.transport.reading
    assert [number for number, _ in peer.answers] == list(range(25))


def test_a_client_may_write_so_far_ahead_of_the_replicas(make_peer: MakePeer) -> None:
    peer = make_peer(ConnectionLimits(ahead_bytes_max=10_000))
    peer.receive(b"".join(frame(PRODUCE, bytes(4_000), correlation_id=number) for number in range(6)))
    assert len(peer.parked) == 3, "the third was over the bound"
    assert not peer.transport.reading
    peer.parked[0].respond([b""])
    peer.turns.end_all()
    assert len(peer.parked) == 3, "not before half of it is answered"
    peer.parked[1].respond([b""])
    peer.turns.end_all()
    assert len(peer.parked) == 5
    for _ in range(2):
        for request in peer.parked:
            if not request.answered:
                request.respond([b""])
        peer.turns.end_all()
    assert len(peer.parked) == 6
    assert peer.transport.reading
    assert [number for number, _ in peer.answers] == list(range(6))


def test_answers_that_wait_for_an_earlier_one_are_still_ahead(make_peer: MakePeer) -> None:
    peer = make_peer(ConnectionLimits(ahead_bytes_max=10_000))
    peer.receive(b"".join(frame(PRODUCE, bytes(4_000), correlation_id=number) for number in range(4)))
    peer.parked[2].respond([b""])
    peer.parked[1].respond([b""])
    peer.turns.end_all()
    assert len(peer.parked) == 3
    peer.parked[0].respond([b""])
    peer.turns.end_all()
    assert len(peer.parked) == 4
    peer.connection.connection_lost(None)


def test_a_client_that_does_not_read_is_not_read(make_peer: MakePeer) -> None:
    peer = make_peer(ConnectionLimits(write_buffer_bytes=1000))
    assert peer.transport.high == 1000
    peer.connection.pause_writing()
    assert not peer.transport.reading
    space = peer.connection.get_buffer(-1)  # a read that was under way
    data = frame(ECHO, b"x")
    space[: len(data)] = data
    peer.connection.buffer_updated(len(data))
    assert peer.seen == []
    peer.connection.resume_writing()
    peer.turns.end_all()
    assert peer.seen == [b"x"]
    assert peer.transport.reading


def test_an_answer_too_many_for_one_write_ends_the_turn(make_peer: MakePeer) -> None:
    peer = make_peer(ConnectionLimits(write_buffer_bytes=2_500_000))
    peer.unread = b"".join(frame(LARGE, correlation_id=n) for n in range(10))
    peer.read()
    assert not peer.transport.reading
    peer.turns.end_all()
    assert len(peer.answers) == 10
    assert [len(write) for write in peer.transport.writes] == [6, 6, 6, 2], "three answers, header and body, a turn"
    assert peer.transport.reading


def test_no_request_is_looked_at_while_answers_are_not_taken(make_peer: MakePeer) -> None:
    peer = make_peer()
    peer.full_bytes = 500_000  # then the transport says so
    peer.receive(b"".join(frame(LARGE, correlation_id=n) for n in range(500)))
    assert len(peer.answers) == 1
    peer.take_answers()
    peer.turns.end_all()
    assert len(peer.answers) == 1


def test_a_crowd_of_requests_is_answered_in_turns(peer: Peer) -> None:
    peer.unread = b"".join(frame(ECHO, b"%d" % n, correlation_id=n) for n in range(200))
    peer.read()
    assert len(peer.seen) == FRAMES_PER_TURN
    peer.turns.end_all()
    assert peer.answers == [(n, b"%d" % n) for n in range(200)]
    assert peer.transport.reading
    assert peer.connection.owned_bytes == 0


def test_answers_behind_a_parked_request_are_bounded(make_peer: MakePeer) -> None:
    peer = make_peer(ConnectionLimits(unsent_bytes_max=2_500_000))
    peer.receive(frame(PARK) + b"".join(frame(LARGE, correlation_id=n) for n in range(1, 11)))
    assert peer.connection.in_flight == 4
    assert not peer.transport.reading
    peer.parked[0].respond([b""])
    peer.turns.end_all()
    assert [number for number, _ in peer.answers] == list(range(11))
    assert peer.transport.reading


def test_bytes_kept_for_waiting_requests_are_bounded(make_peer: MakePeer) -> None:
    peer = make_peer(ConnectionLimits(unsent_bytes_max=1_000))
    connection = peer.connection
    connection.hold(1_000)
    assert peer.transport.reading
    connection.hold(1)
    assert not peer.transport.reading
    connection.hold(-600)
    peer.turns.end_all()
    assert peer.transport.reading


def test_a_request_knows_whose_it_is_and_how_it_came(peer: Peer) -> None:
    peer.receive(frame(PARK, client_id="reports"))
    request = peer.parked[0]
    assert str(request.principal) == "User:ANONYMOUS"
    assert request.client_host == "10.0.0.1"
    assert (request.listener_name, request.security_protocol) == ("PLAINTEXT", "PLAINTEXT")
    assert request.client_id == "reports"
    assert request.told() == "Fetch v4 of 10.0.0.1:5000 (reports)"
    peer.connection.principal = Principal("User", "alice")
    assert str(request.principal) == "User:alice"


def test_nothing_of_a_connection_that_is_gone_is_left_to_the_collector() -> None:
    turns, pool = Turns(), ReceivePool()  # those stay
    parked: list[RequestContext] = []
    routes = RouteTable([Route(PARK, 4, 18, lambda request, frame, position: parked.append(request))])

    def come_and_go() -> None:
        connection, transport = Connection(routes, pool, ConnectionLimits(), turn=turns.turn), FakeTransport()
        connection.connection_made(transport)
        transport.on_written = lambda size: connection.resume_writing()  # transports know who they tell
        data = frame(PARK) * 3
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
        for request in parked:
            request.on_close(request.drop)  # who parks a request knows it
        in_time, at_the_end, never = parked
        in_time.respond([b""])
        turns.end_all()
        connection.connection_lost(None)
        at_the_end.respond([b""])
        never.respond([b""])
        connection.abort()
        turns.turn.latest = None
        parked.clear()

    assert not left_by(come_and_go)
