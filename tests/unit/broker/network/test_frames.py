"""Bytes to requests: frames in pieces, their sizes, their headers, and bytes that are none."""

import logging
import random
import struct

import pytest

from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.receive import CHUNK_BYTES
from ottla.broker.wire.primitives import encode_varint
from tests.unit.broker.network.conftest import (
    ECHO,
    LARGE,
    PARK,
    PRODUCE,
    MakePeer,
    Peer,
    frame,
    one_warning,
)


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


def test_a_header_of_very_many_tagged_fields_is_refused_before_they_are_read(peer: Peer) -> None:
    count = 10_000
    payload = struct.pack(">hhih1s", ECHO, 9, 7, 1, b"c") + encode_varint(count) + b"\x05\x00" * count + b"body"
    peer.receive(struct.pack(">i", len(payload)) + payload)
    assert peer.transport.closing
    assert peer.seen == []


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
