"""Frames in, answers out: order, bounds, and what happens to bytes that are no requests."""

import logging
import random
import struct
from collections.abc import Callable

import pytest

from ottla.broker.network.connection import FRAMES_PER_TURN, Connection
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.principal import Principal
from ottla.broker.network.receive import CHUNK_BYTES, ReceivePool
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route, RouteTable
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.testing.garbage import left_by
from tests.unit.broker.network.conftest import (
    ECHO,
    FAIL,
    LARGE,
    PARK,
    PRODUCE,
    FakeTransport,
    Peer,
    Turns,
    frame,
    responses,
)

MakePeer = Callable[..., Peer]


def one_warning(caplog: pytest.LogCaptureFixture) -> str:
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1, lines
    return lines[0]


def test_answers_of_one_read_leave_in_one_write_in_request_order(peer: Peer) -> None:
    peer.receive(b"".join(frame(ECHO, b"%d" % n, correlation_id=n) for n in range(5)))
    assert peer.answers == [(n, b"%d" % n) for n in range(5)]
    assert len(peer.transport.writes) == 1


@pytest.mark.parametrize("version", [4, 9])
def test_frames_split_at_every_byte_are_put_together(make_peer: MakePeer, version: int) -> None:
    data = frame(ECHO, b"first", correlation_id=1, version=version) + frame(
        ECHO, b"", correlation_id=2, version=version
    )
    data += frame(ECHO, b"third", correlation_id=3, client_id="another", version=version)
    for cut in range(1, len(data)):
        peer = make_peer()
        peer.receive(data[:cut])
        peer.receive(data[cut:])
        assert peer.seen == [b"first", b"", b"third"]
    peer = make_peer()
    peer.receive(data, chunk=1)
    assert [number for number, _ in peer.answers] == [1, 2, 3]


def test_large_frames_arrive_whole_between_small_ones(peer: Peer) -> None:
    rng = random.Random(1)
    bodies = [rng.randbytes(rng.choice((0, 10, 20_000, 300_000, 1_500_000))) for _ in range(30)]
    peer.receive(b"".join(frame(ECHO, body) for body in bodies), chunk=100_001)
    assert peer.seen == bodies


def test_tagged_fields_of_a_flexible_header_are_skipped(peer: Peer) -> None:
    payload = struct.pack(">hhih1s", ECHO, 9, 7, 1, b"c") + b"\x01\x05\x03abc" + b"body"
    peer.receive(struct.pack(">i", len(payload)) + payload)
    assert peer.seen == [b"body"]
    assert peer.answers == [(7, b"\0body")]  # the response header has its own empty section


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


@pytest.mark.parametrize("size", [2**31 - 1, -1, 0, 9])
def test_an_impossible_size_closes_with_one_line_and_allocates_nothing(
    peer: Peer, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    peer.receive(frame(ECHO, b"before", correlation_id=1) + struct.pack(">i", size) + bytes(100))
    assert peer.transport.closing
    assert peer.answers == [(1, b"before")]
    assert peer.connection.owned_bytes == 0
    line = one_warning(caplog)
    assert "10.0.0.1:5000" in line
    assert str(size) in line


@pytest.mark.parametrize(("first", "told"), [(b"GET / HTTP/1.1\r\n\r\n", "HTTP"), (b"\x16\x03\x01\x02\0\x01", "TLS")])
def test_another_protocol_is_named_in_the_log(
    peer: Peer, caplog: pytest.LogCaptureFixture, first: bytes, told: str
) -> None:
    peer.receive(first)
    assert told in one_warning(caplog)


def test_the_largest_allowed_frame_is_taken_and_one_byte_more_is_not(make_peer: MakePeer) -> None:
    limits = ConnectionLimits(request_bytes_max=1000)
    header = len(frame(ECHO)) - 4
    peer = make_peer(limits)
    peer.receive(frame(ECHO, bytes(1000 - header)))
    assert not peer.transport.closing
    peer.receive(frame(ECHO, bytes(1001 - header)))
    assert peer.transport.closing


@pytest.mark.parametrize("chunk", [5, 300, 1 << 20])
def test_a_large_request_without_records_is_refused_before_it_came(
    make_peer: MakePeer, caplog: pytest.LogCaptureFixture, chunk: int
) -> None:
    peer = make_peer(ConnectionLimits(plain_bytes_max=1000))
    peer.receive(frame(ECHO, bytes(950)), chunk=chunk)
    assert len(peer.seen) == 1
    peer.receive(frame(ECHO, bytes(1001)), chunk=chunk)
    assert peer.transport.closing
    assert len(peer.seen) == 1
    assert chunk > 1000 or len(peer.unread) > 500, "nobody waits for the rest of it"
    line = one_warning(caplog)
    assert "Metadata" in line
    assert "ottla.plain.request.max.bytes" in line


def test_requests_with_records_or_of_many_may_be_larger_than_others(make_peer: MakePeer) -> None:
    peer = make_peer(ConnectionLimits(plain_bytes_max=1000))
    peer.receive(frame(PRODUCE, bytes(300_000)) + frame(PARK, bytes(7000)))
    assert len(peer.parked) == 2
    peer.receive(frame(PARK, bytes(9000)))
    assert peer.transport.closing


def test_memory_follows_the_bytes_that_came_not_the_size_that_was_claimed(peer: Peer) -> None:
    peer.receive(struct.pack(">i", 100_000_000) + bytes(50))
    assert 0 < peer.connection.owned_bytes <= 16 << 10


@pytest.mark.parametrize(
    "payload",
    [
        struct.pack(">hhih", ECHO, 4, 1, 5) + b"abc",  # the client id reaches beyond the frame
        struct.pack(">hhih", ECHO, 4, 1, 2) + b"\xff\xfe",  # and is no UTF-8
        struct.pack(">hhih", ECHO, 9, 1, 0) + b"\xff\xff\xff\xff\xff\xff",  # tags without end
        struct.pack(">hhih", ECHO, 9, 1, 0),  # no tags at all
        struct.pack(">hhih", 999, 0, 1, 0),
        struct.pack(">hhih", ECHO, 99, 1, 0),
    ],
)
def test_a_header_that_is_none_closes_only_its_connection(caplog: pytest.LogCaptureFixture, payload: bytes) -> None:
    good, bad = Peer(), Peer()
    bad.receive(struct.pack(">i", len(payload)) + payload + frame(ECHO, b"after"))
    assert bad.transport.closing
    assert bad.seen == []
    one_warning(caplog)
    good.receive(frame(ECHO, b"fine"))
    assert good.seen == [b"fine"]


def test_an_unsupported_version_is_named_in_the_log(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    peer.receive(frame(ECHO, version=44))
    line = one_warning(caplog)
    assert "Metadata" in line
    assert "44" in line


def test_a_handler_that_fails_costs_one_connection(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    peer.receive(frame(FAIL) + frame(ECHO, b"after"))
    assert peer.transport.closing
    assert peer.seen == []
    assert "a mistake of ours" in caplog.text


def test_garbage_of_every_kind_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    rng = random.Random(7)
    for _ in range(300):
        peer = Peer(ConnectionLimits(request_bytes_max=100_000))
        peer.large_bytes = 10_000
        data = bytearray(
            b"".join(frame(rng.choice((ECHO, PARK, LARGE)), rng.randbytes(rng.randrange(40))) for _ in range(4))
        )
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        peer.receive(bytes(data), chunk=rng.choice((1, 7, 1000)))
        peer.connection.connection_lost(None)
        assert peer.connection.in_flight == 0


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


def test_nothing_is_written_to_a_transport_that_closes(peer: Peer) -> None:
    peer.receive(frame(PARK))
    peer.transport.closing = True
    peer.parked[0].respond([b"x"])
    assert peer.answers == []


def test_an_idle_connection_owns_no_memory(peer: Peer) -> None:
    peer.receive(frame(ECHO, bytes(2_000_000)), chunk=CHUNK_BYTES)
    assert peer.connection.owned_bytes > 0  # kept for the next large frame
    peer.connection.trim()
    assert peer.connection.owned_bytes == 0
    peer.receive(frame(ECHO, b"small"))
    assert peer.connection.owned_bytes == 0


def test_trimming_keeps_half_a_frame(peer: Peer) -> None:
    data = frame(ECHO, b"the whole body")
    peer.receive(data[:-4])
    peer.connection.trim()
    peer.receive(data[-4:])
    assert peer.seen == [b"the whole body"]


def test_client_ids_may_change_and_be_null(peer: Peer) -> None:
    for client_id in ("one", None, "two", "", None, "one"):
        peer.receive(frame(PARK, client_id=client_id))
    assert [request.client_id for request in peer.parked] == ["one", None, "two", "", None, "one"]


def test_connections_of_one_loop_share_their_buffer(make_peer: MakePeer) -> None:
    first = make_peer()
    second = make_peer(pool=first.pool)
    data = frame(ECHO, b"interleaved")
    first.receive(data[:10])
    second.receive(data)
    first.receive(data[10:])
    assert first.seen == second.seen == [b"interleaved"]


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
