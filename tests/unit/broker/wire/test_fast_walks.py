"""The hand-written walks read and write what the generated codec does."""

import random
from typing import Any

import pytest

from ottla.broker.wire import fetch_client_fast, fetch_fast, produce_fast
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.fetch_tuples import FetchedPartition
from ottla.broker.wire.messages.fetch_request import FetchRequest
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.broker.wire.messages.produce_request import ProduceRequest
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.broker.wire.primitives import UNCOPIED_MIN
from ottla.broker.wire.schema import message
from ottla.runtime.errors import ErrorCode

PRODUCE_VERSIONS = list(message("ProduceRequest").versions)
FETCH_VERSIONS = list(message("FetchRequest").versions)
CLIENT_VERSIONS = [version for version in FETCH_VERSIONS if version >= 13]
EXAMPLES = 60


def encode(value: Any, version: int) -> bytes:
    return b"".join(encoder(type(value), version)(value))


def produce_request_tuple(request: ProduceRequest, version: int) -> Any:
    topics = [
        (topic.topic_id if version >= 13 else topic.name, [(p.index, p.records) for p in topic.partition_data])
        for topic in request.topic_data
    ]
    return request.transactional_id, request.acks, request.timeout_ms, topics


def fetch_request_tuple(request: FetchRequest, version: int) -> Any:
    def partition(p: Any) -> Any:
        offsets = (p.fetch_offset, p.last_fetched_epoch, p.log_start_offset)
        return (
            p.partition,
            p.current_leader_epoch,
            *offsets,
            p.partition_max_bytes,
            p.replica_directory_id,
            (p.high_watermark),
        )

    by_id = version >= 13
    topics = [(t.topic_id if by_id else t.topic, [partition(p) for p in t.partitions]) for t in request.topics]
    forgotten = [(t.topic_id if by_id else t.topic, t.partitions) for t in request.forgotten_topics_data]
    state = request.replica_state
    replica = (state.replica_id, state.replica_epoch) if version >= 15 else (request.replica_id, -1)
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    session = (request.session_id, request.session_epoch)
    return *replica, *limits, *session, topics, forgotten, request.rack_id, request.cluster_id


def pair_or_none(pair: tuple[int, int]) -> tuple[int, int] | None:
    return None if pair == (-1, -1) else pair


def node_endpoints(response: ProduceResponse | FetchResponse) -> list[produce_fast.NodeEndpoint]:
    return [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]


def produce_response_topics(response: ProduceResponse, version: int) -> Any:
    def ack(p: Any) -> produce_fast.PartitionAck:
        errors = [(error.batch_index, error.batch_index_error_message) for error in p.record_errors]
        leader = pair_or_none((p.current_leader.leader_id, p.current_leader.leader_epoch))
        offsets = (p.base_offset, p.log_append_time_ms, p.log_start_offset)
        return p.index, p.error_code, *offsets, errors, p.error_message, leader

    return [
        (topic.topic_id if version >= 13 else topic.name, [ack(p) for p in topic.partition_responses])
        for topic in response.responses
    ]


def fetch_response_topics(response: FetchResponse, version: int) -> Any:
    def fetched(p: Any) -> FetchedPartition:
        aborted = p.aborted_transactions
        listed = None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted]
        diverging = pair_or_none((p.diverging_epoch.epoch, p.diverging_epoch.end_offset))
        leader = pair_or_none((p.current_leader.leader_id, p.current_leader.leader_epoch))
        snapshot = pair_or_none((p.snapshot_id.end_offset, p.snapshot_id.epoch))
        offsets = (p.high_watermark, p.last_stable_offset, p.log_start_offset)
        extra = (listed, p.preferred_read_replica, p.records)
        return p.partition_index, p.error_code, *offsets, *extra, diverging, leader, snapshot

    return [
        (topic.topic_id if version >= 13 else topic.topic, [fetched(p) for p in topic.partitions])
        for topic in response.responses
    ]


def fetch_response_tuple(response: FetchResponse, version: int) -> Any:
    head = (response.throttle_time_ms, response.error_code, response.session_id)
    return *head, fetch_response_topics(response, version), node_endpoints(response)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_the_produce_walk_reads_what_the_codec_reads(
    version: int, make_message: Any, encode_with_unknown_tags: Any
) -> None:
    rng = random.Random(f"produce {version}")
    for _ in range(EXAMPLES):
        request = make_message("ProduceRequest", version, rng)
        for data in (encode(request, version), encode_with_unknown_tags(request, version)):
            found = produce_fast.walk_produce(memoryview(b"header" + data), 6, version)

            assert found == produce_request_tuple(request, version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_the_fetch_walk_reads_what_the_codec_reads(
    version: int, make_message: Any, encode_with_unknown_tags: Any
) -> None:
    rng = random.Random(f"fetch {version}")
    for _ in range(EXAMPLES):
        request = make_message("FetchRequest", version, rng)
        for data in (encode(request, version), encode_with_unknown_tags(request, version)):
            found = fetch_fast.walk_fetch(memoryview(b"header" + data), 6, version)

            assert found == fetch_request_tuple(request, version)


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_the_fetch_response_walk_reads_what_the_codec_reads(
    version: int, make_message: Any, encode_with_unknown_tags: Any
) -> None:
    rng = random.Random(f"fetched {version}")
    for _ in range(EXAMPLES):
        response = make_message("FetchResponse", version, rng)
        expected = fetch_response_tuple(response, version)
        for data in (encode(response, version), encode_with_unknown_tags(response, version)):
            assert fetch_client_fast.walk_fetch_response(memoryview(b"header" + data), 6, version) == expected


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_the_produce_response_has_the_codecs_bytes(version: int, make_message: Any) -> None:
    rng = random.Random(f"produced {version}")
    for _ in range(EXAMPLES):
        response = make_message("ProduceResponse", version, rng)
        topics = produce_response_topics(response, version)
        endpoints = node_endpoints(response)
        data = produce_fast.encode_produce_response(version, topics, response.throttle_time_ms, endpoints)

        assert data == encode(response, version)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_the_lone_ack_has_the_bytes_of_the_whole_response(version: int) -> None:
    topic = bytes(range(16)) if version >= 13 else "événements"
    ack = (3, 0, 2**40, 1_700_000_000_000, 17)

    lone = produce_fast.encode_produce_ack(version, topic, *ack, throttle_time_ms=250)

    assert lone == produce_fast.encode_produce_response(version, [(topic, [(*ack, (), None, None)])], 250)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_the_fetch_response_has_the_codecs_bytes(version: int, make_message: Any) -> None:
    rng = random.Random(f"answer {version}")
    for _ in range(EXAMPLES):
        response = make_message("FetchResponse", version, rng)
        buffers = fetch_fast.encode_fetch_response(
            version,
            fetch_response_topics(response, version),
            session_id=response.session_id,
            error_code=response.error_code,
            throttle_time_ms=response.throttle_time_ms,
            node_endpoints=node_endpoints(response),
        )

        assert b"".join(buffers) == encode(response, version)


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_the_followers_request_has_the_codecs_bytes(version: int, make_message: Any) -> None:
    rng = random.Random(f"follower {version}")
    for _ in range(EXAMPLES):
        request = make_message("FetchRequest", version, rng)
        replica_id, replica_epoch, *limits, topics, forgotten, rack_id, cluster_id = fetch_request_tuple(
            request, version
        )
        names = ("max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch")
        data = fetch_client_fast.encode_fetch_request(
            version,
            topics,
            replica_id=replica_id,
            replica_epoch=replica_epoch,
            **dict(zip(names, limits, strict=True)),
            forgotten=forgotten,
            rack_id=rack_id,
            cluster_id=cluster_id,
        )

        assert data == encode(request, version)


def test_parts_that_a_version_lacks_are_dropped() -> None:
    ack = (0, 6, -1, -1, -1, [(3, "bad")], "not mine", (2, 7))
    endpoint = (2, "host", 9092, None)
    plain = (0, 6, -1, -1, -1, (), None, None)

    for version, kept in [(3, plain), (7, plain), (9, (*ack[:7], None))]:
        with_all = produce_fast.encode_produce_response(version, [("t", [ack])], 0, [endpoint])
        assert with_all == produce_fast.encode_produce_response(version, [("t", [kept])])


def test_the_walks_never_copy_records_and_the_response_passes_them_on() -> None:
    records = bytes(UNCOPIED_MIN)
    partition = (0, 0, 5, 5, 0, None, -1, records, None, None, None)

    buffers = fetch_fast.encode_fetch_response(17, [(bytes(16), [partition])])
    frame = b"".join(buffers)
    found = fetch_client_fast.walk_fetch_response(memoryview(frame), 0, 17)[3][0][1][0][7]

    assert any(buffer is records for buffer in buffers)
    assert isinstance(found, memoryview)
    assert found.obj is frame


def test_small_records_are_joined_with_what_surrounds_them() -> None:
    partition = (0, 0, 5, 5, 0, None, -1, bytes(UNCOPIED_MIN - 1), None, None, None)

    assert len(fetch_fast.encode_fetch_response(12, [("t", [partition, partition])])) == 1


@pytest.mark.parametrize("version", [-1, 0, 2])
def test_produce_before_version_3_is_unsupported(version: int) -> None:
    with pytest.raises(WireError, match="no longer served") as caught:
        produce_fast.walk_produce(memoryview(bytes(100)), 0, version)

    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_fetch_before_version_4_is_unsupported() -> None:
    with pytest.raises(WireError, match="no longer served") as caught:
        fetch_fast.walk_fetch(memoryview(bytes(100)), 0, 3)

    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_follower_does_not_speak_versions_without_topic_ids() -> None:
    with pytest.raises(WireError, match="does not speak"):
        fetch_client_fast.walk_fetch_response(memoryview(bytes(100)), 0, 12)
    with pytest.raises(WireError, match="does not speak"):
        fetch_client_fast.encode_fetch_request(12, [], max_wait_ms=1, min_bytes=1, max_bytes=1)


WALKS: dict[str, tuple[Any, Any, list[int]]] = {
    "ProduceRequest": (produce_fast.walk_produce, produce_request_tuple, PRODUCE_VERSIONS),
    "FetchRequest": (fetch_fast.walk_fetch, fetch_request_tuple, FETCH_VERSIONS),
    "FetchResponse": (fetch_client_fast.walk_fetch_response, fetch_response_tuple, CLIENT_VERSIONS),
}


@pytest.mark.parametrize("name", WALKS)
def test_damaged_bytes_are_read_or_refused_as_the_codec_does(name: str, make_message: Any) -> None:
    walk, as_tuple, versions = WALKS[name]
    refused = read = 0
    for version in versions:
        rng = random.Random(f"damaged {name} {version}")
        for _ in range(150):
            data = bytearray(encode(make_message(name, version, rng), version)[: rng.choice([30, 100, 1000, 100_000])])
            for _ in range(rng.randint(0, 2)):
                at = rng.randrange(min(len(data), 60))
                data[at : at + 1] = rng.choice([b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", rng.randbytes(1)])
            try:
                value = decoder(name, version)(memoryview(data), 0)[0]
            except WireError:
                refused += 1
                with pytest.raises(WireError):
                    walk(memoryview(data), 0, version)
            else:
                read += 1
                assert walk(memoryview(data), 0, version) == as_tuple(value, version)

    assert min(read, refused) > len(versions) * 10
