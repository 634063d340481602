"""Reading segments in pieces."""

from pathlib import Path

import pytest

from ottla.log.batch import CorruptBatchError
from ottla.log.records import Record, encode_batch
from ottla.log.segments import walk
from ottla.log.segments.scan import scan_batches
from ottla.runtime.real_disk import RealDisk


def segment(tmp_path: Path, sizes: list[int]) -> tuple[Path, list[bytes]]:
    batches = [bytes(encode_batch([Record(i, 0, None, bytes(size))], base_offset=i)) for i, size in enumerate(sizes)]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(batches))
    return path, batches


@pytest.mark.parametrize("chunk_bytes", [61, 62, 100, 150, 333, 10_000])
def test_every_batch_comes_once_whatever_the_piece(tmp_path: Path, chunk_bytes: int) -> None:
    path, batches = segment(tmp_path, [0, 10, 500, 3, 90, 0])
    found = list(scan_batches(RealDisk().open(str(path)), chunk_bytes=chunk_bytes))
    assert [bytes(batch) for _, _, batch in found] == batches
    assert [header.base_offset for _, header, _ in found] == [0, 1, 2, 3, 4, 5]
    assert [position for position, _, _ in found] == [sum(map(len, batches[:i])) for i in range(6)]


def test_a_scan_may_begin_and_end_inside_the_file(tmp_path: Path) -> None:
    path, batches = segment(tmp_path, [10, 20, 30, 40])
    start, end = len(batches[0]), sum(map(len, batches[:3]))
    found = list(scan_batches(RealDisk().open(str(path)), start, end))
    assert [bytes(batch) for _, _, batch in found] == batches[1:3]


@pytest.mark.parametrize("cut", [1, 30, 65])
@pytest.mark.parametrize("chunk_bytes", [61, 100, 10_000])
def test_a_torn_tail_is_named_by_its_position(tmp_path: Path, cut: int, chunk_bytes: int) -> None:
    path, batches = segment(tmp_path, [10, 20, 30])
    path.write_bytes(path.read_bytes()[:-cut])
    found: list[bytes] = []
    with pytest.raises(CorruptBatchError) as caught:
        found.extend(bytes(batch) for _, _, batch in scan_batches(RealDisk().open(str(path)), chunk_bytes=chunk_bytes))
    assert caught.value.position == len(batches[0] + batches[1])


@pytest.mark.parametrize("piece_bytes", [100, 10_000])
def test_pieces_of_a_file_that_is_shorter_than_was_said_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """Who reads goes by the size that the segment had when the log was opened."""
    path, batches = segment(tmp_path, [10, 20, 300])
    end = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-30])
    monkeypatch.setattr(walk, "PIECE_BYTES", piece_bytes)
    found: list[bytes] = []
    with pytest.raises(CorruptBatchError):
        found.extend(map(bytes, walk.pieces(RealDisk().open(str(path)), 0, end)))
    assert b"".join(found) == batches[0] + batches[1]


def test_zeros_behind_the_last_batch_are_no_batch(tmp_path: Path) -> None:
    path, batches = segment(tmp_path, [10])
    path.write_bytes(batches[0] + bytes(4096))
    scan = scan_batches(RealDisk().open(str(path)))
    assert bytes(next(scan)[2]) == batches[0]
    with pytest.raises(CorruptBatchError) as caught:
        next(scan)
    assert caught.value.position == len(batches[0])


def test_an_empty_file_has_no_batches(tmp_path: Path) -> None:
    path, _ = segment(tmp_path, [])
    assert list(scan_batches(RealDisk().open(str(path)))) == []
