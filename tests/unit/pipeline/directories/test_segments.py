"""Topics are read from a node's directories as a consumer would have been given them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.pipeline.arrow.encoder import encode
from ottla.pipeline.arrow.schema import COLUMNS
from ottla.pipeline.segments.errors import CorruptSegmentError, SegmentsError
from ottla.pipeline.segments.options import parse
from ottla.pipeline.segments.pieces import PIECE_BYTES
from ottla.pipeline.segments.reading import Stretch, read_stretch
from ottla.pipeline.segments.source import SegmentsSource
from ottla.pipeline.segments.tasks import plan
from tests.unit.pipeline.directories.conftest import replaced_leader

NewNode = Callable[[], Any]
SEGMENT = {"segment_bytes": 2000, "index_interval_bytes": 300}


def tasks(*paths: Path, **options: str) -> list[list[Stretch]]:
    return plan(parse({"path": ",".join(map(str, paths)), **options}))


def table(*paths: Path, piece_bytes: int = 1000, **options: str) -> pa.Table:
    parsed = parse({"path": ",".join(map(str, paths)), **options})
    found = [
        batch
        for task in plan(parsed)
        for part in task
        for batch in read_stretch(
            part, parsed.columns, fail_on_data_loss=parsed.fail_on_data_loss, piece_bytes=piece_bytes
        )
    ]
    return pa.Table.from_batches(found, schema=None if found else pa.schema([("offset", pa.int64())]))


def offsets(*paths: Path, **options: Any) -> list[int]:
    found: list[int] = table(*paths, **options)["offset"].to_pylist()
    return found


def filled(node: Any, batches: int = 60, **config: int) -> Any:
    log = node.log(**(config or SEGMENT))
    for _ in range(batches):
        node.append(3)
    node.commit()
    assert len(log.segments) > 2 or config
    return node.stop()


def test_every_record_of_every_segment_comes_once(new_node: NewNode) -> None:
    node = filled(new_node())

    found = table(node.path)

    assert found["offset"].to_pylist() == list(range(180))
    assert found["value"].to_pylist()[7].startswith(b"7 ")
    assert set(found["topic"].to_pylist()) == {"flights"}
    assert offsets(node.directory()) == offsets(node.path.parent) == list(range(180))


def test_a_large_segment_is_cut_between_batches(new_node: NewNode) -> None:
    node = filled(new_node(), index_interval_bytes=300)

    cut = tasks(node.path, maxPartitionBytes="1000")

    assert len(cut) > 5
    assert [part.start for task in cut for part in task][1:] == [part.end for task in cut for part in task][:-1]
    assert offsets(node.path, maxPartitionBytes="1000") == list(range(180))


def test_an_index_that_lies_cuts_nothing(new_node: NewNode) -> None:
    node = filled(new_node(), index_interval_bytes=300)
    index = node.segment().with_suffix(".index")
    index.write_bytes(b"".join(n.to_bytes(4, "big") + (n * 350).to_bytes(4, "big") for n in range(1, 30)))

    assert len(tasks(node.path, maxPartitionBytes="1000")) == 1
    assert offsets(node.path, maxPartitionBytes="1000") == list(range(180))
    index.unlink()
    assert offsets(node.path, maxPartitionBytes="1000") == list(range(180))


def test_many_small_partitions_are_one_task(new_node: NewNode) -> None:
    node = new_node()
    for partition in range(20):
        node.append(2, log=node.log(partition=partition))
        node.commit(log=node.log(partition=partition))
    node.stop()

    (task,) = tasks(node.path)

    assert len(task) == 20
    assert offsets(node.path) == [0, 1] * 20


def test_records_above_the_high_watermark_wait_for_it(new_node: NewNode) -> None:
    node = new_node()
    node.append(5)
    node.append(5)
    node.commit(5)
    node.stop()

    assert offsets(node.path) == [0, 1, 2, 3, 4]
    assert offsets(node.path, upTo="log-end") == list(range(10))
    (node.path / "replication-offset-checkpoint").unlink()
    assert offsets(node.path) == list(range(10))


def test_what_kafka_wrote_about_its_directories_is_understood(new_node: NewNode) -> None:
    node = filled(new_node())
    (node.path / "replication-offset-checkpoint").write_text("0\n2\nother 0 1\nflights 0 7\n")
    (node.path / "log-start-offset-checkpoint").write_text("0\n1\nflights 0 4\n")

    assert offsets(node.path) == [4, 5, 6]


def test_records_of_aborted_and_open_transactions_are_left_out(new_node: NewNode) -> None:
    node = new_node()
    node.log(**SEGMENT)
    for number in range(40):
        for producer in (5, 6):
            node.append(2, producer_id=producer, producer_epoch=0, base_sequence=2 * number, transactional=True)
        node.append(1)
        node.end_transaction(5, committed=number % 3 > 0)
        node.end_transaction(6, committed=True)
    end = node.append(1)
    node.append(2, producer_id=5, producer_epoch=0, base_sequence=80, transactional=True)
    node.append(4)
    node.commit()
    whole = [row for number in range(40) for row in range(7 * number, 7 * number + 5)] + list(range(end - 1, end + 6))
    committed = [row for row in whole if row < end and (row % 7 > 1 or row // 7 % 3 > 0)]

    assert offsets(node.path, upTo="log-end") == committed, "as a kill leaves it"
    node.stop()
    assert offsets(node.path) == committed
    assert offsets(node.path, isolationLevel="read_uncommitted") == whole
    for lost in ("snapshot", "txnindex"):
        for path in node.directory().glob(f"*.{lost}"):
            path.unlink()
        if lost == "snapshot":
            assert offsets(node.path) == committed
    assert offsets(node.path) == committed


def test_what_was_open_before_the_batches_that_are_left_holds_nothing_back(new_node: NewNode) -> None:
    """The newer snapshots went with a power cut, and retention took how it ended."""
    node = new_node()
    log = node.log()
    node.append(2, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll()
    node.end_transaction(5, committed=True)
    log.roll()
    node.append(3)
    node.commit()
    node.stop()
    snapshots = sorted(node.directory().glob("*.snapshot"))
    for path in (*snapshots[1:], *sorted(node.directory().glob("*.log"))[:2]):
        path.unlink()

    assert int(snapshots[0].stem) == 2
    assert offsets(node.path) == [3, 4, 5]


def test_a_torn_tail_ends_the_log(new_node: NewNode) -> None:
    node = new_node()
    node.append(10)
    size = node.segment().stat().st_size
    node.append(10)
    node.stop()
    (node.path / "replication-offset-checkpoint").unlink()
    sound, torn = node.segment().read_bytes()[:size], node.segment().read_bytes()[size:-1]

    for tail in (b"\0", torn[:40], torn, bytes(500)):
        node.segment().write_bytes(sound + tail)
        assert offsets(node.path) == list(range(10))


def test_zeros_beyond_what_is_read_at_once_end_the_log(new_node: NewNode) -> None:
    node = new_node()
    node.append(10)
    node.stop()
    (node.path / "replication-offset-checkpoint").unlink()
    size = node.segment().stat().st_size
    os.truncate(node.segment(), size + 2 * PIECE_BYTES)

    assert offsets(node.path, piece_bytes=PIECE_BYTES) == list(range(10))
    with open(node.segment(), "r+b") as file:
        file.seek(size + 2 * PIECE_BYTES - 1)
        file.write(b"x")
    with pytest.raises(CorruptSegmentError, match=f"at byte {size}, offset 10: batch version 0"):
        offsets(node.path, piece_bytes=PIECE_BYTES)


def test_a_log_that_ends_below_its_high_watermark_is_an_error(new_node: NewNode) -> None:
    node = new_node()
    node.append(5)
    node.append(5)
    node.commit()
    node.stop()
    os.truncate(node.segment(), node.segment().stat().st_size - 3)

    with pytest.raises(CorruptSegmentError, match="records up to offset 10"):
        offsets(node.path)
    assert offsets(node.path, failOnDataLoss="false") == [0, 1, 2, 3, 4]


def test_a_segment_that_ends_early_in_the_middle_of_a_log_is_an_error(new_node: NewNode) -> None:
    node = filled(new_node())
    os.truncate(node.segment(0), node.segment(0).stat().st_size - 3)

    with pytest.raises(CorruptSegmentError, match="ends within a batch") as caught:
        offsets(node.path)
    assert caught.value.path == str(node.segment(0))
    assert len(offsets(node.path, failOnDataLoss="false")) == 177


def test_a_bad_crc_names_file_position_and_offset_and_may_be_passed_over(new_node: NewNode) -> None:
    node = filled(new_node())
    data = bytearray(node.segment(0).read_bytes())
    size = int.from_bytes(data[8:12], "big") + 12
    data[2 * size + 70] ^= 1
    node.segment(0).write_bytes(data)

    with pytest.raises(CorruptSegmentError, match="CRC") as caught:
        offsets(node.path)

    assert (caught.value.path, caught.value.position, caught.value.offset) == (str(node.segment(0)), 2 * size, 6)
    assert offsets(node.path, failOnDataLoss="false") == [n for n in range(180) if n not in (6, 7, 8)]


def test_a_file_that_went_after_the_plan_is_named_or_passed_over(new_node: NewNode) -> None:
    node = filled(new_node())
    (task,) = tasks(node.path)
    segment = node.segment(0)
    segment.unlink()

    with pytest.raises(CorruptSegmentError, match=f"{segment}.*No such file"):
        list(read_stretch(task[0], ("offset",)))
    assert list(read_stretch(task[0], ("offset",), fail_on_data_loss=False)) == []


def test_of_several_replicas_one_is_read(new_node: NewNode) -> None:
    leader, follower = new_node(), new_node()
    leader.append(5)
    leader.append(5)
    leader.commit(5)
    follower.follow(leader)
    leader.append(5)
    leader.commit(10)
    leader.stop()
    follower.stop()

    assert offsets(leader.path, follower.path) == list(range(10))


def test_what_a_replaced_leader_wrote_is_not_read(new_node: NewNode) -> None:
    """Its log is the longest, and what it holds below the high watermark was never committed."""
    old, new = replaced_leader(new_node)

    found = table(old.path, new.path)

    assert found["offset"].to_pylist() == list(range(6))
    assert {len(value) for value in found["value"].to_pylist()} == {22}


def test_two_topics_of_one_name_are_not_mixed(new_node: NewNode) -> None:
    old, new = new_node(), new_node()
    for node, topic_id, count in ((old, bytes(15) + b"\x01", 3), (new, bytes(15) + b"\x02", 5)):
        log = node.log(topic_id=topic_id)
        node.append(count)
        node.commit(log=log)
        node.stop()

    with pytest.raises(SegmentsError, match=r"2 topics.*topicId"):
        offsets(old.path, new.path)
    assert offsets(old.path, new.path, topicId="AAAAAAAAAAAAAAAAAAAAAg") == list(range(5))


def test_topics_are_chosen_by_name_or_pattern_and_internal_ones_are_not(new_node: NewNode) -> None:
    node = new_node()
    for topic in ("a", "b.c", "__consumer_offsets", "__mine"):
        node.append(1, log=node.log(topic))
        node.commit(log=node.log(topic))
    node.stop()

    assert set(table(node.path)["topic"].to_pylist()) == {"a", "b.c"}
    assert set(table(node.path, subscribe="__consumer_offsets")["topic"].to_pylist()) == {"__consumer_offsets"}
    assert set(table(node.path, subscribePattern="b.*")["topic"].to_pylist()) == {"b.c"}
    assert set(table(node.path, subscribePattern=".*")["topic"].to_pylist()) == {"a", "b.c", "__mine"}
    assert set(table(node.path, subscribePattern="__consumer_offsets")["topic"].to_pylist()) == {"__consumer_offsets"}
    with pytest.raises(SegmentsError, match="no topic in"):
        table(node.path, subscribePattern="__consumer_.*")
    with pytest.raises(SegmentsError, match="flights"):
        table(node.path, subscribe="a,flights")


def test_a_topic_that_nobody_wrote_to_has_no_records(new_node: NewNode) -> None:
    node = new_node()
    node.log("a")
    node.append(1, log=node.log("b", 1))
    node.commit(log=node.log("b", 1))
    node.log("b", 0)
    node.stop()

    assert offsets(node.path, subscribe="a") == []
    assert offsets(node.directory("a")) == []
    assert offsets(node.path, subscribe="a,b") == [0]


def test_before_anything_is_committed_nothing_is_read(new_node: NewNode) -> None:
    node = new_node()
    node.append(3)
    node.stop()

    assert offsets(node.path) == []


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SegmentsError, match="no such directory"):
        table(tmp_path / "nowhere")
    with pytest.raises(SegmentsError, match="there is none"):
        table(tmp_path)


def test_a_directory_of_brackets_is_a_name(new_node: NewNode, tmp_path: Path) -> None:
    node = filled(new_node())
    node.path.rename(tmp_path / "disk[1]")

    assert len(offsets(tmp_path / "disk[1]")) == 180
    assert len(offsets(tmp_path / "disk*")) == 180


@pytest.mark.parametrize(
    "options",
    [
        {"paths": "x"},
        {"isolationLevel": "serializable"},
        {"upTo": "12"},
        {"columns": "key,keys"},
        {"maxPartitionBytes": "many"},
        {"minPartitions": "0"},
        {"subscribe": "a", "subscribePattern": "b"},
        {"subscribePattern": "("},
        {"failOnDataLoss": "perhaps"},
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(SegmentsError, match=next(iter(options))):
        parse({"path": "/a", **options})


def test_sparks_schema_is_that_of_the_batches(new_node: NewNode) -> None:
    node = filled(new_node())
    source = SegmentsSource({"path": str(node.path), "includeheaders": "true"})
    schema = source.schema()
    reader = source.reader(schema)

    batches = [batch for part in reader.partitions() for batch in reader.read(part)]

    assert {to_arrow_schema(schema, timezone="UTC").equals(batch.schema) for batch in batches} == {True}
    assert tuple(schema.names) == COLUMNS
    assert sum(batch.num_rows for batch in batches) == 180


def test_what_compaction_left_comes(new_node: NewNode) -> None:
    node = new_node()
    node.log(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, **SEGMENT)
    for number in range(60):
        node.append(3 + number % 2)
    node.commit()
    node.compact()
    node.stop()

    found = offsets(node.path)

    assert len(found) < 60
    assert found == sorted(set(found))
    assert found[-1] == 209
    assert {bytes(key) for key in table(node.path)["key"].to_pylist()} == {b"k0", b"k1", b"k2", b"k3"}


def test_memory_is_some_pieces_however_large_the_segment(tmp_path: Path) -> None:
    directory = tmp_path / "fleet-0"
    directory.mkdir()
    values = pa.array([bytes([number % 251]) * 4000 for number in range(10_000)])
    batches = encode(None, values, timestamps=1, base_offset=0)
    (directory / f"{0:020d}.log").write_bytes(b"".join(batch.data for batch in batches))
    del values, batches
    before, most, rows = pa.total_allocated_bytes(), 0, 0

    for task in tasks(tmp_path):
        for part in task:
            for batch in read_stretch(part, ("value",), piece_bytes=1 << 20):
                rows += batch.num_rows
                most = max(most, pa.total_allocated_bytes() - before)

    assert rows == 10_000
    assert most < 4 << 20
