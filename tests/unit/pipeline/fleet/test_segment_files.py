"""A fleet's segment files hold what the fleet sends: each record once, offsets without gaps, the same bytes each time."""

from pathlib import Path

import pyarrow as pa
import pytest

from ottla.pipeline.arrow.decoder import Decoder
from ottla.pipeline.fleet.batches import partitions_of
from ottla.pipeline.fleet.fleet import Fleet
from ottla.pipeline.fleet.judge import Judge
from ottla.pipeline.fleet.names import of_values
from ottla.pipeline.fleet.segment_files import DirectoryInUseError, write_segments
from ottla.pipeline.fleet.sending import KINDS, numbers_of

FLEET = Fleet(records=20_000, vehicles=100, offline=0.2)


def records_in(directory: Path, topic: str, partition: int) -> pa.Table:
    decoder = Decoder(topic, partition, ("key", "value", "offset", "timestamp"))
    files = sorted((directory / f"{topic}-{partition}").glob("*.log"))
    pieces: list[pa.RecordBatch] = []
    for file in files:
        assert int(file.stem) == decoder.next_offset
        pieces += decoder.feed(file.read_bytes())
    return pa.Table.from_batches(pieces)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_all_of_a_fleet_lies_in_its_segments_once(tmp_path: Path, compression: str) -> None:
    told = list(write_segments(FLEET, KINDS, tmp_path, partitions=3, compression=compression, segment_bytes=600_000))
    for kind in KINDS:
        judge = Judge(FLEET, kind)
        for partition in range(3):
            records = records_in(tmp_path, f"fleet_{kind}", partition)
            assert records["offset"].to_pylist() == list(range(records.num_rows))
            vehicles, numbers = of_values(records["value"])
            assert set(partitions_of(vehicles, 3).tolist()) == {partition}
            judge.take(vehicles, numbers)
        assert judge.findings().is_whole
        assert sum(each.records for each in told if each.kind == kind) == numbers_of(FLEET, kind).sum()
    on_disk = sum(file.stat().st_size for file in tmp_path.rglob("*.log"))
    assert sum(each.size for each in told) == on_disk
    assert all(file.stat().st_size <= 600_000 for file in tmp_path.rglob("*.log"))


def test_the_files_are_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        list(write_segments(FLEET, KINDS, tmp_path / name, partitions=2))
    for file in (tmp_path / "one").rglob("*.log"):
        assert file.read_bytes() == (tmp_path / "two" / file.relative_to(tmp_path / "one")).read_bytes()


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    list(write_segments(FLEET, ("V",), tmp_path, partitions=1))
    with pytest.raises(DirectoryInUseError, match="fleet_V-0 is not empty"):
        list(write_segments(FLEET, ("V",), tmp_path, partitions=1))
