"""The hand-written walks read and write what the generated codec does."""

import random
from typing import Any

import pytest

from ottla.broker.fetch_tuples import FetchedPartition
from ottla.broker.wire import fetch_client_fast, fetch_fast, produce_fast
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.broker.wire.messages.fetch_response import FetchResponse
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.broker.wire.primitives import UNCOPIED_MIN, encode_varint
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
                at = rng.randrange(min(len(data), rng.choice([60, 10_000])))
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


HUGE_COMPACT = b"\xff\xff\xff\xff\x0f"
HUGE = b"\x7f\xff\xff\xff"
HEADS: dict[str, tuple[int, bytes]] = {
    "produce topics": (9, b"\x00" + bytes(6) + HUGE_COMPACT),
    "produce partitions": (9, b"\x00" + bytes(6) + b"\x02" + b"\x02t" + HUGE_COMPACT),
    "produce partitions by id": (13, b"\x00" + bytes(6) + b"\x02" + bytes(16) + HUGE_COMPACT),
    "produce topics, old": (3, b"\xff\xff" + bytes(6) + HUGE),
    "produce partitions, old": (3, b"\xff\xff" + bytes(6) + b"\x00\x00\x00\x01" + b"\x00\x01t" + HUGE),
    "fetch topics": (12, bytes(25) + HUGE_COMPACT),
    "fetch partitions": (12, bytes(25) + b"\x02" + b"\x02t" + HUGE_COMPACT),
    "fetch forgotten": (15, bytes(21) + b"\x01" + HUGE_COMPACT),
    "fetch forgotten partitions": (15, bytes(21) + b"\x01" + b"\x02" + bytes(16) + HUGE_COMPACT),
    "fetch tags": (15, bytes(21) + b"\x01\x01\x01" + HUGE_COMPACT),
    "fetch topics, old": (4, bytes(17) + HUGE),
    "fetch partitions, old": (4, bytes(17) + b"\x00\x00\x00\x01" + b"\x00\x01t" + HUGE),
    "fetch forgotten, old": (7, bytes(25) + bytes(4) + HUGE),
    "response topics": (13, bytes(10) + HUGE_COMPACT),
    "response partitions": (13, bytes(10) + b"\x02" + bytes(16) + HUGE_COMPACT),
}
"""Requests and responses that end in a count of two or four thousand millions, by version."""


@pytest.mark.parametrize("what", HEADS)
def test_a_count_that_cannot_fit_is_refused_by_the_walks(what: str) -> None:
    version, data = HEADS[what]
    walk = {"produce": produce_fast.walk_produce, "fetch": fetch_fast.walk_fetch}.get(
        what.split()[0], fetch_client_fast.walk_fetch_response
    )

    with pytest.raises(WireError, match=r"array of (2147483647|429496729[45]) does not fit in the"):
        walk(memoryview(data + bytes(30)), 0, version)


def follower_request(version: int, **changes: Any) -> bytes:
    partition = (0, 1, 2, 3, 4, 5, bytes(range(16)), 77)
    limits = {"max_wait_ms": 1, "min_bytes": 2, "max_bytes": 3}
    return fetch_client_fast.encode_fetch_request(version, [(bytes(16), [partition])], **{**limits, **changes})


def test_a_tag_means_nothing_in_the_versions_before_it() -> None:
    def directory_and_watermark(data: bytes, version: int) -> tuple[Any, ...]:
        return fetch_fast.walk_fetch(memoryview(data), 0, version)[8][0][1][0][-2:]

    newest = follower_request(18)

    assert directory_and_watermark(newest, 18) == (bytes(range(16)), 77)
    assert directory_and_watermark(newest, 17) == (bytes(range(16)), 2**63 - 1)
    assert directory_and_watermark(newest, 16) == (bytes(16), 2**63 - 1)
    assert directory_and_watermark(follower_request(17), 18) == (bytes(range(16)), 2**63 - 1)
    assert directory_and_watermark(follower_request(16), 18) == (bytes(16), 2**63 - 1)


def test_a_follower_sends_no_tag_that_the_version_lacks() -> None:
    def codecs(version: int) -> bytes:
        fields: dict[str, Any] = {"replica_directory_id": bytes(range(16))} if version >= 17 else {}
        partition = FetchPartition(0, 1, 2, 3, 4, 5, **fields)
        return encode(
            FetchRequest(max_wait_ms=1, min_bytes=2, max_bytes=3, topics=[FetchTopic("", bytes(16), [partition])]),
            version,
        )

    assert follower_request(16) == codecs(16)
    assert follower_request(17) == codecs(17)


def test_the_replica_of_a_version_before_15_is_not_tagged() -> None:
    state = b"\x01\x01\x0d" + bytes(12) + b"\x00"
    data = encode(FetchRequest(replica_id=4), 14)[:-1] + state

    assert fetch_fast.walk_fetch(memoryview(data), 0, 14)[:2] == (4, -1)
    assert fetch_fast.walk_fetch(memoryview(encode(FetchRequest(), 15)[:-1] + state), 0, 15)[:2] == (0, 0)


def test_node_endpoints_are_known_from_version_16_on() -> None:
    endpoint: produce_fast.NodeEndpoint = (2, "host", 9092, "rack")
    newer = b"".join(fetch_fast.encode_fetch_response(16, [], node_endpoints=[endpoint]))
    older = b"".join(fetch_fast.encode_fetch_response(15, [], node_endpoints=[endpoint]))

    assert fetch_client_fast.walk_fetch_response(memoryview(newer), 0, 16)[-1] == [endpoint]
    assert fetch_client_fast.walk_fetch_response(memoryview(newer), 0, 15)[-1] == []
    assert older == encode(FetchResponse(), 15)


def test_a_tagged_part_at_its_default_is_not_sent() -> None:
    nobody = (-1, -1)
    ack = (0, 0, 1, -1, 0, (), None)
    fetched = (0, 0, 5, 5, 0, None, -1, None)

    assert produce_fast.encode_produce_response(10, [("t", [(*ack, nobody)])]) == produce_fast.encode_produce_response(
        10, [("t", [(*ack, None)])]
    )
    assert fetch_fast.encode_fetch_response(12, [("t", [(*fetched, nobody, nobody, nobody)])]) == (
        fetch_fast.encode_fetch_response(12, [("t", [(*fetched, None, None, None)])])
    )
    assert fetch_client_fast.encode_fetch_request(17, [], max_wait_ms=0, min_bytes=0, max_bytes=1) == encode(
        FetchRequest(max_bytes=1), 17
    )


@pytest.mark.parametrize("size", [b"\x0d", b"\x7f"])
def test_a_tag_of_the_wrong_size_is_refused_by_the_walks(size: bytes) -> None:
    endpoints = b"\x02" + bytes(4) + b"\x01" + bytes(4) + b"\x00" + b"\x00"
    right = bytes(10) + b"\x01" + b"\x01\x00" + bytes((len(endpoints),)) + endpoints
    wrong = bytes(10) + b"\x01" + b"\x01\x00" + size + endpoints + b"\x00"

    assert fetch_client_fast.walk_fetch_response(memoryview(right), 0, 16)[-1] == [(0, "", 0, None)]
    with pytest.raises(WireError, match=r"does not fill|beyond"):
        fetch_client_fast.walk_fetch_response(memoryview(wrong), 0, 16)


def test_a_request_may_not_leave_its_rack_null() -> None:
    null_rack = encode(FetchRequest(), 11)[:-2] + b"\xff\xff"
    compact = bytes(21) + b"\x01\x01\x00\x00"

    for data, version in [(null_rack, 11), (compact, 15)]:
        with pytest.raises(WireError, match="null"):
            fetch_fast.walk_fetch(memoryview(data), 0, version)


def test_a_topic_may_not_leave_its_name_null() -> None:
    for data, version in [
        (b"\x00" + bytes(6) + b"\x02" + b"\x00" * 9, 9),
        (b"\xff" * 2 + bytes(9) + b"\x01\xff\xff", 3),
    ]:
        with pytest.raises(WireError, match="null"):
            produce_fast.walk_produce(memoryview(data + bytes(8)), 0, version)


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(WireError, match="32767"):
        produce_fast.encode_produce_ack(3, "t" * 32768, 0, 0, 0, 0, 0)
    with pytest.raises(WireError, match="32767"):
        produce_fast.encode_produce_ack(9, "t" * 32768, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("version", [7, 12, 13])
@pytest.mark.parametrize("topics", [1, 3])
def test_a_produce_request_of_too_many_entries_is_refused(
    version: int, topics: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries_max = 400
    monkeypatch.setattr(produce_fast, "ENTRIES_MAX", entries_max)

    def request(partitions: int) -> memoryview:
        data = [PartitionProduceData(index=index, records=b"r") for index in range(partitions)]
        return memoryview(
            encode(ProduceRequest(topic_data=[TopicProduceData(partition_data=data) for _ in range(topics)]), version)
        )

    allowed = (entries_max - topics) // topics - 1  # a topic counts, too
    *_, read = produce_fast.walk_produce(request(allowed), 0, version)
    assert [len(partitions) for _, partitions in read] == [allowed] * topics
    with pytest.raises(WireError, match="more than 400 topics and partitions"):
        produce_fast.walk_produce(request(allowed + 2), 0, version)


def test_a_produce_request_of_very_many_tagged_fields_is_refused() -> None:
    count = 100_000
    body = encode(ProduceRequest(), 9)[:-1] + encode_varint(count) + b"\x05\x00" * count
    with pytest.raises(WireError, match="100000 tagged fields"):
        produce_fast.walk_produce(memoryview(body), 0, 9)


@pytest.mark.parametrize("version", [12, 17])
def test_a_fetch_request_of_very_many_tagged_fields_is_refused(version: int) -> None:
    """A list of them: a gigabyte for those that fit into the 16 MiB that a Fetch may have."""
    empty = b"\x05\x00" * 100_000
    body = memoryview(encode(FetchRequest(), version)[:-1] + encode_varint(100_000) + empty)
    with pytest.raises(WireError, match="100000 tagged fields"):
        fetch_fast.walk_fetch(body, 0, version)
    with pytest.raises(WireError, match="100000 tagged fields"):
        decoder(FetchRequest, version)(body, 0)
    with pytest.raises(WireError, match="100 tagged fields"):
        fetch_fast.walk_partition_tags(memoryview(empty), 0, 100, version)
