"""What older versions may have let in, sound by its CRC and wrong inside, harms nobody who comes across it later."""

from collections.abc import Iterator

import pytest

from ottla.log.batch import CONTROL, DELETE_HORIZON, HEADER, HEADER_BYTES, TRANSACTIONAL, BatchHeader, read_header
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, assemble_batch, decode_records, encode_batch, reseal
from ottla.runtime.errors import KafkaError
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter
from ottla.testing.log.compacted import CompactedLog, compacted_log
from ottla.testing.log.strange_batches import NOW, strange_batch

SEEDS_PER_TEST = 500
NEVER_TAKEN = CONTROL | DELETE_HORIZON | TRANSACTIONAL
PARTITION = TopicPartition("strange", 0)


def placed_batches(seeds: range) -> Iterator[tuple[bytearray, BatchHeader]]:
    """Those that a log without our checks would hold, one behind another."""
    end = 0
    for seed in seeds:
        data = bytearray(strange_batch(seed).data)
        if len(data) < HEADER_BYTES or data[16] != 2:
            continue
        header = BatchHeader._make(HEADER.unpack_from(data))
        if header.size_bytes != len(data) or not 0 <= header.last_offset_delta < 2**20:
            continue
        attributes = header.attributes & 0x1F & ~NEVER_TAKEN
        header = header._replace(base_offset=end, leader_epoch=1, attributes=attributes, producer_id=-1)
        HEADER.pack_into(data, 0, *header)
        reseal(data)
        end = header.next_offset
        yield data, read_header(data)


@pytest.mark.parametrize("first", range(0, 3_000, SEEDS_PER_TEST))
def test_searches_by_time_and_restarts_get_over_them(first: int) -> None:
    disk = SimulatedDisk(Platter.seeded(first))
    disk.make_directories("/data")
    config = LogConfig(segment_bytes=10_000, index_interval_bytes=100)
    log = Log.open(disk, f"/data/{PARTITION}", PARTITION, config, now_ms=NOW)
    largest = []
    for batch, header in placed_batches(range(first, first + SEEDS_PER_TEST)):
        log.append_as_follower(batch)
        largest.append(header.max_timestamp)
    assert len(largest) > SEEDS_PER_TEST // 2
    times = sorted({*largest, NOW - 1, NOW, NOW + 1, NOW + 300, 0, 2**62})
    found = [log.offset_for_timestamp(time) for time in times]
    assert all(each is None or 0 <= each.offset < log.log_end_offset for each in found)
    assert found[times.index(NOW)] is not None
    end = log.log_end_offset
    again = Log.open(
        disk, f"/data/{PARTITION}", PARTITION, config, now_ms=NOW
    )  # nothing was noted as sound: all is read
    assert again.log_end_offset == end
    assert [again.offset_for_timestamp(time) for time in times] == found


@pytest.fixture
def compacted() -> Iterator[CompactedLog]:
    with compacted_log() as log:
        yield log


@pytest.mark.parametrize("first", range(0, 2_000, SEEDS_PER_TEST))
def test_compaction_gets_over_them(compacted: CompactedLog, first: int) -> None:
    for number, (batch, _) in enumerate(placed_batches(range(first, first + SEEDS_PER_TEST))):
        compacted.write(batch)
        if number % 50 == 49:
            compacted.roll()
    compacted.append(("key", "1"))
    compacted.clean()
    assert (compacted.end - 1, "key", "1") in whole_pairs(compacted)
    compacted.append(("key", "2"))
    compacted.clean()  # what is clean is gone over again
    assert [pair[2] for pair in whole_pairs(compacted) if pair[1] == "key"][-1] == "2"


def whole_pairs(log: CompactedLog) -> list[tuple[int, str | None, str | None]]:
    """Of the batches that can be read."""
    found = []
    for header, batch in log.batches():
        try:
            records = decode_records(batch, header)
        except KafkaError:
            continue
        found += [(each.offset, text(each.key), text(each.value)) for each in records]
    return found


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


@pytest.mark.parametrize("count", [-(2**31), -1, 2**31 - 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_a_count_that_cannot_be_costs_compaction_no_memory(compacted: CompactedLog, count: int, codec: int) -> None:
    for batch in (1, 2):
        compacted.append(("key", str(batch)))
        sound = encode_batch([Record(compacted.end, NOW, b"lost", b"x")], base_offset=compacted.end, compression=codec)
        compacted.write(assemble_batch(read_header(sound)._replace(records_count=count), sound[HEADER_BYTES:]))
        compacted.append(("other", str(batch)))
        compacted.roll()
    compacted.clean()
    compacted.append(("other", "3"))
    compacted.clean()
    assert whole_pairs(compacted) == [(3, "key", "2"), (6, "other", "3")]
