"""Microseconds a message for the hot messages: ``python tests/benchmarks/bench_wire.py``.

The best of several rounds, beside what the prototype of this design needed on the same class of machine (its own
generator with msgspec structs; its hand-written walk where it had one).
"""

import timeit
from collections.abc import Callable
from typing import Any

from ottla.broker.fetch_tuples import NO_HIGH_WATERMARK, FetchPartition
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.fetch_client_fast import encode_fetch_request, walk_fetch_response
from ottla.broker.wire.fetch_fast import encode_fetch_response, walk_fetch
from ottla.broker.wire.headers import encode_request_header, read_request_header
from ottla.broker.wire.messages import fetch_request as fetch
from ottla.broker.wire.messages import metadata_response as metadata
from ottla.broker.wire.messages import produce_request as produce
from ottla.broker.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.produce_fast import encode_produce_ack, encode_produce_response, walk_produce
from ottla.runtime.identifiers import ZERO_ID

ROUNDS = 7


def microseconds(call: Callable[[], Any]) -> float:
    """The least time of one call."""
    timer = timeit.Timer(call)
    number, _ = timer.autorange()
    number = max(1, number // 20)
    return min(timer.repeat(ROUNDS, number)) / number * 1e6


def produce_request(topics: int, partitions: int, size: int) -> memoryview:
    batch = bytes(size)
    data = [
        produce.TopicProduceData(
            f"topic-{t}", ZERO_ID, [produce.PartitionProduceData(p, batch) for p in range(partitions)]
        )
        for t in range(topics)
    ]
    return joined(encoder(produce.ProduceRequest, 9)(produce.ProduceRequest(None, -1, 30000, data)))


def fetch_request(topics: int, partitions: int) -> memoryview:
    listed = [
        fetch.FetchTopic(f"topic-{t}", ZERO_ID, [fetch.FetchPartition(p, 3, 10**9, 3) for p in range(partitions)])
        for t in range(topics)
    ]
    return joined(encoder(fetch.FetchRequest, 12)(fetch.FetchRequest(max_wait_ms=500, topics=listed)))


def metadata_response(topics: int, partitions: int) -> metadata.MetadataResponse:
    replicas = [1, 2, 3]
    rows = [
        metadata.MetadataResponsePartition(0, p, 1, 5, replicas, replicas, []) for p in range(partitions)
    ]  # fmt: skip
    return metadata.MetadataResponse(
        brokers=[metadata.MetadataResponseBroker(node, "localhost", 9092 + node) for node in range(3)],
        cluster_id="abcdefghijklmnopqrstuv",
        topics=[metadata.MetadataResponseTopic(0, f"topic-{t}", bytes(16), False, rows) for t in range(topics)],
    )


def fetched(topics: int, partitions: int, size: int) -> list[tuple[str | bytes, list[Any]]]:
    batch = bytes(size)
    return [
        (f"topic-{t}", [(p, 0, 10**9, 10**9, 0, None, -1, batch, None, None, None) for p in range(partitions)])
        for t in range(topics)
    ]


def joined(buffers: list[Any]) -> memoryview:
    return memoryview(b"".join(buffers))


def cases() -> list[tuple[str, str, Callable[[], Any]]]:
    """(what, the prototype's figure, the call)."""
    produce_one, produce_many = produce_request(1, 1, 16384), produce_request(10, 10, 200)
    fetch_none, fetch_one, fetch_many = fetch_request(0, 0), fetch_request(1, 1), fetch_request(10, 10)
    decode_produce, decode_fetch = decoder(produce.ProduceRequest, 9), decoder(fetch.FetchRequest, 12)
    asked = MetadataRequest(topics=[MetadataRequestTopic(ZERO_ID, f"topic-{t}") for t in range(100)])
    metadata_many = joined(encoder(MetadataRequest, 12)(asked))
    decode_metadata, encode_metadata = decoder(MetadataRequest, 12), encoder(metadata.MetadataResponse, 12)
    header = memoryview(encode_request_header(0, 9, 1, "rdkafka") + b"body")
    heartbeat = joined(encoder(HeartbeatRequest, 4)(HeartbeatRequest("group", 1, "member")))
    acks: Any = [(f"topic-{t}", [(p, 0, 10**9, -1, 0, (), None, None) for p in range(10)]) for t in range(10)]
    one, many = fetched(1, 1, 65536), fetched(10, 10, 200)
    row: FetchPartition = (0, 3, 10**9, 3, 0, 1 << 20, ZERO_ID, NO_HIGH_WATERMARK)
    followed = [(bytes(16), [row] * 10)] * 10
    limits: Any = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20}
    followers = memoryview(encode_fetch_request(17, followed, **limits))
    answer = joined(encode_fetch_response(17, [(bytes(16), rows) for _, rows in fetched(10, 10, 200)]))
    small, large = metadata_response(1, 1), metadata_response(100, 10)
    return [
        ("read request header", "-", lambda: read_request_header(header, 0)),
        ("walk Produce v9 1x1 16 KB", "1.00", lambda: walk_produce(produce_one, 0, 9)),
        ("walk Produce v9 10x10 200 B", "22.8", lambda: walk_produce(produce_many, 0, 9)),
        ("decode Produce v9 1x1 16 KB", "1.46", lambda: decode_produce(produce_one, 0)),
        ("decode Produce v9 10x10 200 B", "44.4", lambda: decode_produce(produce_many, 0)),
        ("ack Produce v9 1x1", "1.75", lambda: encode_produce_ack(9, "topic-0", 0, 0, 10**9, -1, 0)),
        ("ack Produce v9 10x10", "38", lambda: encode_produce_response(9, acks)),
        ("walk Fetch v12 empty session", "-", lambda: walk_fetch(fetch_none, 0, 12)),
        ("walk Fetch v12 1x1", "-", lambda: walk_fetch(fetch_one, 0, 12)),
        ("walk Fetch v12 10x10", "-", lambda: walk_fetch(fetch_many, 0, 12)),
        ("walk Fetch v17 10x10", "-", lambda: walk_fetch(followers, 0, 17)),
        ("decode Fetch v12 empty session", "0.78", lambda: decode_fetch(fetch_none, 0)),
        ("decode Fetch v12 1x1", "1.57", lambda: decode_fetch(fetch_one, 0)),
        ("decode Fetch v12 10x10", "23.3", lambda: decode_fetch(fetch_many, 0)),
        ("answer Fetch v12 1x1 64 KB", "0.91", lambda: encode_fetch_response(12, one)),
        ("answer Fetch v12 10x10 200 B", "56", lambda: encode_fetch_response(12, many)),
        ("follower asks v17 10x10", "-", lambda: encode_fetch_request(17, followed, **limits)),
        ("follower reads v17 10x10 200 B", "-", lambda: walk_fetch_response(answer, 0, 17)),
        ("decode Metadata v12 100 topics", "41.5", lambda: decode_metadata(metadata_many, 0)),
        ("encode Metadata v12 1x1", "2.3", lambda: encode_metadata(small)),
        ("encode Metadata v12 100x10 rf3", "819", lambda: encode_metadata(large)),
        ("decode Heartbeat v4", "-", lambda: decoder(HeartbeatRequest, 4)(heartbeat, 0)),
    ]


def main() -> None:
    print(f"{'':34}{'us':>9}{'prototype':>11}")
    for what, prototype, call in cases():
        print(f"{what:34}{microseconds(call):9.2f}{prototype:>11}")


if __name__ == "__main__":
    main()
