"""Kafka's text files, byte for byte as Apache Kafka 4.3.1 writes them."""

from pathlib import Path

import pytest

from ottla.log.directories.checkpoints import (
    CheckpointError,
    CleanShutdown,
    MetaProperties,
    PartitionMetadata,
    read_epochs,
    write_epochs,
)
from ottla.log.names import TopicPartition
from ottla.runtime.identifiers import id_from_text
from ottla.runtime.real_disk import RealDisk
from ottla.testing.log.offset_checkpoint import OffsetCheckpoint

DISK = RealDisk()


def test_an_offset_checkpoint_has_version_count_and_rows(tmp_path: Path) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    checkpoint = OffsetCheckpoint(DISK, str(path))
    offsets = {TopicPartition("codecs", 0): 1000, TopicPartition("with.dots-and_more", 12): 0}
    checkpoint.write(offsets)
    assert path.read_bytes() == b"0\n2\ncodecs 0 1000\nwith.dots-and_more 12 0\n"
    assert checkpoint.read() == offsets


def test_a_missing_or_empty_checkpoint_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    checkpoint = OffsetCheckpoint(DISK, str(path))
    assert checkpoint.read() == {}
    path.touch()  # as Kafka creates it
    assert checkpoint.read() == {}
    checkpoint.write({})
    assert path.read_bytes() == b"0\n0\n"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("1\n0\n", "line 1"),
        ("0\n", "line 2"),
        ("0\n2\na 0 1\n", "line 2"),
        ("0\nx\na 0 1\n", "line 2"),
        ("0\n1\na 0\n", "line 3"),
        ("0\n2\na 0 1\na 1 b\n", "line 4"),
        (b"0\n1\n\xff 0 1\n", "not text"),
    ],
)
def test_a_damaged_checkpoint_names_file_and_line(tmp_path: Path, text: str | bytes, where: str) -> None:
    path = tmp_path / "cleaner-offset-checkpoint"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CheckpointError, match=where) as caught:
        OffsetCheckpoint(DISK, str(path)).read()
    assert str(path) in str(caught.value)


def test_leader_epochs_are_rows_of_epoch_and_offset(tmp_path: Path) -> None:
    assert read_epochs(DISK, str(tmp_path)) == ()
    write_epochs(DISK, str(tmp_path), ((0, 0), (3, 120)))
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n3 120\n"
    assert read_epochs(DISK, str(tmp_path)) == ((0, 0), (3, 120))


def test_partition_metadata_holds_the_topic_id_without_a_last_newline(tmp_path: Path) -> None:
    topic_id = id_from_text("r6nqZEThTTSfFa1fJIJsQQ")
    PartitionMetadata.write(DISK, str(tmp_path), topic_id)
    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: r6nqZEThTTSfFa1fJIJsQQ"
    assert PartitionMetadata.read(DISK, str(tmp_path)) == topic_id


def test_partition_metadata_may_be_missing_but_not_damaged(tmp_path: Path) -> None:
    assert PartitionMetadata.read(DISK, str(tmp_path)) is None
    (tmp_path / "partition.metadata").write_text("version: 7\ntopic_id: r6nqZEThTTSfFa1fJIJsQQ")
    with pytest.raises(CheckpointError, match="version '7'"):
        PartitionMetadata.read(DISK, str(tmp_path))
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: short")
    with pytest.raises(CheckpointError, match=r"partition\.metadata"):
        PartitionMetadata.read(DISK, str(tmp_path))


def test_meta_properties_are_read_as_java_writes_them(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Nov 21 08:06:31 UTC 2026\nnode.id=1\ndirectory.id=5TOglyozVh1Goj5eQj-uhg\nversion=1\ncluster.id=4n3CwchiQumkws049xBtEg\n"
    )
    found = MetaProperties.read(DISK, str(tmp_path))
    assert found == MetaProperties("4n3CwchiQumkws049xBtEg", 1, id_from_text("5TOglyozVh1Goj5eQj-uhg"))


def test_meta_properties_survive_a_round_trip(tmp_path: Path) -> None:
    assert MetaProperties.read(DISK, str(tmp_path)) is None
    properties = MetaProperties("some-cluster", 7, bytes(range(16)))
    properties.write(DISK, str(tmp_path))
    assert MetaProperties.read(DISK, str(tmp_path)) == properties


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("version=0\nbroker.id=1\n", "version '0'"),
        ("version=1\nnode.id=1\ndirectory.id=5TOglyozVh1Goj5eQj-uhg\n", "no cluster.id"),
        ("version=1\ncluster.id=c\nnode.id=one\ndirectory.id=5TOglyozVh1Goj5eQj-uhg\n", "one"),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=short\n", "meta.properties"),
    ],
)
def test_damaged_meta_properties_say_what_is_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(CheckpointError, match=complaint):
        MetaProperties.read(DISK, str(tmp_path))


def test_the_clean_shutdown_mark_is_taken_once(tmp_path: Path) -> None:
    assert not CleanShutdown.take(DISK, str(tmp_path))
    CleanShutdown.write(DISK, str(tmp_path), 11)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":11}'
    assert CleanShutdown.broker_epoch(DISK, str(tmp_path)) == 11
    assert CleanShutdown.take(DISK, str(tmp_path))
    assert not CleanShutdown.take(DISK, str(tmp_path))
    assert CleanShutdown.broker_epoch(DISK, str(tmp_path)) == -1


def test_an_unreadable_clean_shutdown_mark_still_counts(tmp_path: Path) -> None:
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert CleanShutdown.broker_epoch(DISK, str(tmp_path)) == -1
    assert CleanShutdown.take(DISK, str(tmp_path))
