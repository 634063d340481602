"""ReadLogRequest: what a tool is given of a voter's log."""

from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.proto import quorum_pb2 as pb
from ottla.quorum.batches import encode_values
from ottla.quorum.log_reading import READ_BYTES_MAX, answer_read, last_batches
from ottla.quorum.snapshots.files import SnapshotDescription, SnapshotFiles
from ottla.runtime.errors import ErrorCode
from ottla.runtime.real_disk import RealDisk
from ottla.testing.quorum.memory import MemoryLog


def log_of(count: int, value: bytes = b"x") -> MemoryLog:
    log = MemoryLog()
    for offset in range(count):
        log.append_as_follower(bytes(encode_values([value], offset, 1, 0, "")), 1)
    return log


def ask(log: MemoryLog, high_watermark: int, files: SnapshotFiles | None = None, **fields: object) -> pb.QuorumResponse:
    return answer_read(log, files, high_watermark, pb.ReadLogRequest(**fields))  # type: ignore[arg-type]  # keywords of many types


def snapshots(tmp_path: Path, data: bytes, end_offset: int) -> SnapshotFiles:
    path = tmp_path / f"{end_offset:020d}-0000000001.checkpoint"
    path.write_bytes(data)
    description = msgspec.json.encode(SnapshotDescription(len(data), crc32c(data)))
    path.with_name(path.name + ".json").write_bytes(description)
    return SnapshotFiles(RealDisk(), str(tmp_path))


def test_only_what_is_committed_is_given() -> None:
    body = ask(log_of(5), 3, offset=1, max_bytes=READ_BYTES_MAX).read_log
    assert (body.log_start, body.high_watermark) == (0, 3)
    assert body.records == bytes(encode_values([b"x"], 1, 1, 0, "") + encode_values([b"x"], 2, 1, 0, ""))
    assert not ask(log_of(5), 3, offset=3, max_bytes=1).read_log.records


def test_a_node_that_does_not_know_what_is_committed_gives_nothing() -> None:
    body = ask(log_of(5), -1, offset=0, max_bytes=1).read_log
    assert (body.high_watermark, body.records) == (0, b"")


def test_nobody_can_ask_for_more_than_the_loop_can_bear() -> None:
    log = log_of(40, bytes(100_000))
    assert len(ask(log, 40, offset=0, max_bytes=1 << 30).read_log.records) <= READ_BYTES_MAX


def test_who_asks_for_what_is_gone_is_told_of_the_snapshot_before_it(tmp_path: Path) -> None:
    log = log_of(5)
    log.advance_log_start(2)
    files = snapshots(tmp_path, b"an image", 2)
    body = ask(log, 5, files, offset=-1).read_log
    assert (body.log_start, body.records) == (2, b"")
    assert (body.snapshot.offset, body.snapshot.epoch) == (2, 1)


def test_a_log_with_its_beginning_names_no_snapshot(tmp_path: Path) -> None:
    assert not ask(log_of(5), 5, snapshots(tmp_path, b"an image", 2), offset=0).read_log.HasField("snapshot")


def test_a_snapshot_is_given_in_pieces(tmp_path: Path) -> None:
    files = snapshots(tmp_path, b"an image", 2)
    place = pb.OffsetAndEpoch(offset=2, epoch=1)
    piece = ask(log_of(1), 1, files, snapshot=place, position=3, max_bytes=3).fetch_snapshot
    assert (piece.position, piece.size, piece.data, piece.checksum) == (3, 8, b"ima", crc32c(b"an image"))
    gone = ask(log_of(1), 1, files, snapshot=pb.OffsetAndEpoch(offset=9, epoch=1), max_bytes=3)
    assert gone.error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert ask(log_of(1), 1, None, snapshot=place, max_bytes=3).error_code == ErrorCode.SNAPSHOT_NOT_FOUND


@pytest.mark.parametrize(
    ("end", "records_max", "offsets"),
    [(5, 2, [3, 4]), (3, 2, [1, 2]), (5, 9, [0, 1, 2, 3, 4]), (9, 3, []), (0, 2, [])],
)
def test_the_last_batches_are_those_below_an_end(end: int, records_max: int, offsets: list[int]) -> None:
    assert [batch.base_offset for batch in last_batches(log_of(5), end, records_max)] == offsets


def test_the_last_batches_begin_where_the_log_does_and_come_however_large_they_are() -> None:
    log = log_of(30, bytes(READ_BYTES_MAX // 4))
    log.advance_log_start(10)
    assert [batch.base_offset for batch in last_batches(log, 30, 25)] == list(range(10, 30))


def test_a_damaged_log_tells_the_batches_before_the_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    value = bytes(READ_BYTES_MAX // 2)
    name = TopicPartition("__cluster_metadata", 0)
    log = Log.open(RealDisk(), str(tmp_path / str(name)), name, LogConfig(segment_bytes=1), now_ms=0)
    for offset in range(4):
        log.append_as_follower(bytes(encode_values([value], offset, 1, 0, "")), 1)
    third = tmp_path / str(name) / f"{2:020d}.log"
    damaged = bytearray(third.read_bytes())
    damaged[-1] ^= 1
    log.close()
    third.write_bytes(damaged)
    log = Log.open(RealDisk(), str(tmp_path / str(name)), name, LogConfig(segment_bytes=1), now_ms=0, recovery_point=4)
    assert [batch.base_offset for batch in last_batches(log, 4, 4)] == [0, 1]
    assert "not all can be read" in caplog.text
    log.close()
