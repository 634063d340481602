"""The client's codec reads and writes what the broker's does, from the schema alone."""

import random
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.headers import encode_request_header, read_request_header
from ottla.broker.wire.schema import message
from ottla.pipeline.wire.codec import decode, encode
from ottla.testing.messages import MessageMaker

USED = [
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "ApiVersions",
    "DescribeLogDirs",
    "EndTxn",
    "Fetch",
    "FindCoordinator",
    "InitProducerId",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "Produce",
    "TxnOffsetCommit",
]


def plain(value: Any) -> Any:
    """Nested dicts of a message of the broker's or of the client's classes."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if hasattr(type(value), "__slots__") and not isinstance(value, bytes | memoryview | str | int | float):
        return {name: plain(getattr(value, name)) for name in type(value).__slots__}
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.parametrize("api", USED)
def test_a_request_of_the_clients_is_what_the_broker_reads_in_every_version(api: str) -> None:
    for version in message(f"{api}Request").versions:
        rng = random.Random(f"{api} {version}")
        for _ in range(3):
            wanted = MessageMaker(tame=False)(f"{api}Request", version, rng)
            frame = memoryview(b"".join(encode(api, version, plain(wanted), 7, "me")))[4:]

            key, seen, correlation_id, client_id, position = read_request_header(frame, 0)
            assert (BY_NAME[api].key, version, 7, "me") == (key, seen, correlation_id, client_id)
            assert (wanted, len(frame)) == decoder(f"{api}Request", version)(frame, position)


@pytest.mark.parametrize("api", USED)
def test_an_answer_of_the_brokers_is_read_in_every_version(api: str) -> None:
    for version in message(f"{api}Response").versions:
        rng = random.Random(f"{api} {version}")
        flexible = BY_NAME[api].is_flexible(version) and api != "ApiVersions"
        for _ in range(3):
            wanted = MessageMaker(tame=False)(f"{api}Response", version, rng)
            body = b"".join(encoder(type(wanted), version)(wanted))
            frame = memoryview(b"\0\0\0\x07" + b"\0" * flexible + body)

            assert (7, plain(wanted)) == (lambda found: (found[0], plain(found[1])))(decode(api, version, frame))


def test_a_request_is_preceded_by_its_length_and_large_records_are_not_copied() -> None:
    records = bytes(5000)
    partition = {"index": 0, "records": records}
    buffers = encode("Produce", 9, {"topic_data": [{"name": "t", "partition_data": [partition]}]}, 1, "me")

    assert sum(map(len, buffers)) - 4 == int.from_bytes(buffers[0][:4])
    assert any(buffer is records for buffer in buffers)


def test_a_field_that_does_not_exist_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        encode("Fetch", 12, {"topicz": []}, 1, "me")


def test_a_header_of_the_broker_and_of_the_client_are_one() -> None:
    assert encode_request_header(1, 12, 5, "c") == encode("Fetch", 12, {}, 5, "c")[0][4:]


BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ImportError(f"{{name}} is not here")

sys.meta_path.insert(0, Blocker())
import {module}
"""
NOT_THERE = {
    "aiokafka", "click", "confluent_kafka", "cramjam", "crc32c", "grpc", "kafka", "lmdb", "lz4", "msgspec",
    "prometheus_client", "google", "re2", "rich", "snappy", "uvloop", "zstandard",
}  # fmt: skip


@pytest.mark.parametrize(
    ("module", "more"),
    [
        ("ottla.pipeline.wire.fetch", {"numpy", "pyarrow", "pyspark", "pandas"}),
        ("ottla.pipeline.wire.groups", {"numpy", "pyarrow", "pyspark", "pandas"}),
        ("ottla.pipeline.source.task", {"pyspark", "pandas", "fastavro"}),
        ("ottla.pipeline.source.formats.avro_values", {"pyspark", "pandas", "fastavro"}),
        ("ottla.pipeline.source.formats.protobuf_values", {"pyspark", "pandas"}),
        ("ottla.pipeline.source.datasource", {"fastavro"}),
    ],
)
def test_what_an_executor_needs_is_imported_where_nothing_else_is(module: str, more: set[str]) -> None:
    blocked = BLOCKED.format(names={*NOT_THERE, *more}, module=module)

    subprocess.run([sys.executable, "-c", blocked], check=True, capture_output=True)
