"""The records of internal topics, decoded: bytes that Apache Kafka 4.3.1 wrote, and Ottla's own metadata."""

from base64 import b64decode
from typing import Any

import pytest

from ottla.cli.log_records import decoder_of
from ottla.log.records import Record
from ottla.proto.metadata_pb2 import MetadataRecord


def decoded(topic: str, key: str | None, value: bytes | str | None) -> Any:
    decode = decoder_of(f"{topic}-3")
    assert decode is not None
    data = b64decode(value) if isinstance(value, str) else value
    return decode(Record(0, 0, None if key is None else b64decode(key), data))


def test_a_committed_offset() -> None:
    found = decoded(
        "__consumer_offsets", "AAEAAmcxAAZjb2RlY3MAAAAA", "AAQAAAAAAAAD6AAAAAABAAABof0lHMABABBr4K5kRzBKCacpbg4TNbCF"
    )
    assert (found["type"], found["key"]) == ("OffsetCommit", {"group": "g1", "topic": "codecs", "partition": 0})
    assert found["value"] == {
        "version": 4,
        "offset": 1000,
        "leader_epoch": 0,
        "metadata": "",
        "commit_timestamp": 1795248430272,
        "expire_timestamp": -1,
        "topic_id": "a-CuZEcwSgmnKW4OEzWwhQ",
    }


def test_a_group_with_what_its_members_subscribe_to() -> None:
    found = decoded(
        "__consumer_offsets",
        "AAIAAmcx",
        "AAMACGNvbnN1bWVyAAAAAQAFcmFuZ2UALHJka2Fma2EtZWIyNzg0ZDQtYjk4MC00YTdjLTlmYzYtYjc3NWE4MjhiZDlmAAABof0lHDIAAAABACxyZGthZmth"
        "LWViMjc4NGQ0LWI5ODAtNGE3Yy05ZmM2LWI3NzVhODI4YmQ5Zv//AAdyZGthZmthAAovMTI3LjAuMC4xAAST4AAAr8gAAAAcAAMAAAABAAZjb2RlY3MAAAAAAAAA"
        "AP////8AAAAAABoAAAAAAAEABmNvZGVjcwAAAAEAAAAAAAAAAA==",
    )
    (member,) = found["value"]["members"]
    assert (found["key"], found["value"]["protocol"], member["client_host"]) == ({"group": "g1"}, "range", "/127.0.0.1")
    assert (member["subscription"]["version"], member["subscription"]["topics"]) == (3, ["codecs"])
    assert member["assignment"]["assigned_partitions"] == [{"topic": "codecs", "partitions": [0]}]


def test_a_transaction() -> None:
    value = "AAEAAAAAAAAABQAAAADqYAECBHR4bgIAAAAAAAAAAaH9JRBgAAABof0lEGABAAgAAAAAAAAABQ=="
    found = decoded("__transaction_state", "AAAAA3R4MQ==", value)
    assert found["key"] == {"transactional_id": "tx1"}
    assert found["value"]["transaction_status"] == 1
    assert found["value"]["transaction_partitions"] == [{"topic": "txn", "partition_ids": [0]}]


def test_a_tombstone_has_no_value() -> None:
    assert decoded("__transaction_state", "AAAAA3R4MQ==", None)["value"] is None


def test_kafkas_metadata() -> None:
    found = decoded("__cluster_metadata", None, "AQUCAAAABgsPzQUSd0k3gUeAyyo2jYkEAAEBAQT/////BgUCAAAAAQcFAgAAAAE=")
    assert (found["type"], found["version"], found["partition_id"]) == ("PartitionChangeRecord", 2, 6)
    assert (found["topic_id"], found["eligible_leader_replicas"]) == ("Cw_NBRJ3STeBR4DLKjaNiQ", [1])


def test_our_own_metadata() -> None:
    record = MetadataRecord()
    record.topic.name = "flights"
    assert decoded("__cluster_metadata", None, record.SerializeToString())["topic"]["name"] == "flights"


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        ("__consumer_offsets", "AA==", b""),
        ("__consumer_offsets", "AAEAAmcxAAZjb2RlY3MAAAAA", b"\x00"),
        ("__consumer_offsets", "AAEAAmcxAAZjb2RlY3MAAAAA", b"\x00\x63"),
        ("__consumer_offsets", "AAEAAmcxAAZjb2RlY3MAAAAA", b"\x00\x03\x00"),
        ("__consumer_offsets", "AAEAAmcxAAZjb2RlY3MAAAAAAA==", b"\x00\x03\x00"),
        ("__consumer_offsets", "AGM=", b""),
        ("__cluster_metadata", None, b"\xff\xff"),
        ("__cluster_metadata", None, b"\x01\x63\x00"),
        ("__cluster_metadata", None, b"\x01\x05\x02\x00"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_dump_shows(topic: str, key: str | None, value: bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        decoded(topic, key, value)


def test_topics_of_users_are_not_decoded() -> None:
    assert decoder_of("flights-0") is None
