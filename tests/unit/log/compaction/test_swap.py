"""Replacing segments by cleaned ones: whatever instruction the process dies at, recovery finds all the old or all the new."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ottla.log.batch import read_header
from ottla.log.compaction.cleaner import CleaningJob, clean
from ottla.log.compaction.output import WRITE_BACK_BYTES, CleanedSegment, SegmentWriter
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.compaction.swap import recover_swaps, swap_files
from ottla.log.records import Record, encode_batch
from ottla.log.segments.transactions import AbortedTransaction, encode
from ottla.runtime.disk import Buffer, Disk, File
from ottla.runtime.real_disk import RealDisk, RealFile
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.platter import Platter

SCRATCH = "/dev/shm" if os.path.isdir("/dev/shm") else None
CLEANED = CleanedSegment(0, (0, 10, 20), 0)


class Crash(BaseException):
    """The process dies here."""


class CrashingDisk:
    """A real disk that dies before the ``left``-th change to a directory or a file."""

    def __init__(self, left: int) -> None:
        self._disk = RealDisk()
        self.left = left

    def __getattr__(self, name: str) -> object:
        method = getattr(self._disk, name)
        if name in ("rename", "unlink", "sync_directory", "open"):
            self._step()
        return method

    def _step(self) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1


def disk_dying_after(steps: int) -> Disk:
    disk: Disk = CrashingDisk(steps)  # type: ignore[assignment]  # every method is there, through __getattr__
    return disk


def batch(base_offset: int, value: bytes) -> bytes:
    return bytes(encode_batch([Record(base_offset + i, 5, b"k", value) for i in range(10)], base_offset=base_offset))


@pytest.fixture
def directory() -> Iterator[Path]:
    """Segments 0, 10, 20, 30 with all their files, and the first three cleaned into one that ends where they do."""
    with TemporaryDirectory(dir=SCRATCH) as name:
        path = Path(name)
        for base in (0, 10, 20, 30):
            (path / f"{base:020d}.log").write_bytes(batch(base, b"old"))
            for suffix in (".index", ".timeindex", ".txnindex"):
                (path / f"{base:020d}{suffix}").write_bytes(b"old" + suffix.encode())
        writer = SegmentWriter(RealDisk(), name, 0, 4096)
        for base in (0, 20):
            writer.append(batch(base, b"new"), base + 9, 5)
        writer.finish([AbortedTransaction(1, 2, 3, 4)])
        yield path


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if not path.name.endswith(".deleted")}


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def swap(disk: Disk, directory: Path) -> list[str]:
    return swap_files(disk, str(directory), CLEANED)


def test_a_swap_replaces_segments_and_their_indexes(directory: Path) -> None:
    condemned = swap(RealDisk(), directory)
    found = contents(directory)
    assert found[f"{0:020d}.log"] == batch(0, b"new") + batch(20, b"new")
    assert {name for name in found if name.endswith(".log")} == {f"{0:020d}.log", f"{30:020d}.log"}
    assert found[f"{0:020d}.txnindex"] != b"old.txnindex"
    assert len(condemned) == 12
    assert all(os.path.exists(path) and path.endswith(".deleted") for path in condemned)


def test_an_index_that_the_new_segment_has_not_is_gone(directory: Path) -> None:
    (directory / f"{0:020d}.txnindex.cleaned").unlink()
    swap(RealDisk(), directory)
    assert not (directory / f"{0:020d}.txnindex").exists()


def steps_of_a_swap() -> int:
    return 40


@pytest.mark.parametrize("steps", range(steps_of_a_swap()))
def test_a_crash_at_any_step_leaves_the_old_or_the_new(directory: Path, steps: int) -> None:
    old = {name: data for name, data in contents(directory).items() if not name.endswith(".cleaned")}
    finished = False
    try:
        swap(disk_dying_after(steps), directory)
        finished = True
    except Crash:
        pass
    recover_swaps(RealDisk(), str(directory))
    found = contents(directory)
    assert not [name for name in found if name.endswith((".cleaned", ".swap"))]
    if f"{10:020d}.log" in found:
        assert not finished
        assert {name: found.get(name) for name in old} == old
    else:
        assert found[f"{0:020d}.log"] == batch(0, b"new") + batch(20, b"new")
        assert found[f"{0:020d}.txnindex"] == encode(AbortedTransaction(1, 2, 3, 4))
        assert {name for name in found if not name.startswith((f"{0:020d}", f"{30:020d}"))} == set()
        assert {name: found[name] for name in old if name.startswith(f"{30:020d}")} == {
            n: d for n, d in old.items() if n.startswith(f"{30:020d}")
        }


@pytest.mark.parametrize("steps", range(steps_of_a_swap()))
def test_segments_of_which_nothing_is_left_go_whole_or_stay_whole(directory: Path, steps: int) -> None:
    writer = SegmentWriter(RealDisk(), str(directory), 0, 4096)
    writer.append(batch(0, b"new"), 9, 5)
    writer.finish([])
    old = {name: data for name, data in contents(directory).items() if not name.endswith(".cleaned")}
    with contextlib.suppress(Crash):
        swap(disk_dying_after(steps), directory)
    with contextlib.suppress(Crash):
        recover_swaps(disk_dying_after(steps % 7), str(directory))
    recover_swaps(RealDisk(), str(directory))
    found = contents(directory)
    assert {name.partition(".")[2] for name in found} == {"log", "index", "timeindex", "txnindex"}
    swapped = found[f"{0:020d}.log"] == batch(0, b"new")
    for base in (10, 20, 30):
        files = {name: data for name, data in found.items() if name.startswith(f"{base:020d}")}
        whole = {name: data for name, data in old.items() if name.startswith(f"{base:020d}")}
        assert files in ((whole, {}) if swapped and base != 30 else (whole,))


def test_enough_steps_are_tried(directory: Path) -> None:
    disk = CrashingDisk(steps_of_a_swap() - 1)
    swap(disk, directory)  # type: ignore[arg-type]  # as much of one as is used
    assert disk.left >= 0


@pytest.mark.parametrize("first", range(8, 32, 3))
@pytest.mark.parametrize("second", range(0, 24, 2))
def test_a_crash_in_recovery_is_recovered_too(directory: Path, first: int, second: int) -> None:
    for attempt in (
        lambda: swap(disk_dying_after(first), directory),
        lambda: recover_swaps(disk_dying_after(second), str(directory)),
    ):
        with contextlib.suppress(Crash):
            attempt()
    recover_swaps(RealDisk(), str(directory))
    found = contents(directory)
    assert not [name for name in found if name.endswith((".cleaned", ".swap"))]
    logs = [data for name, data in found.items() if name.endswith(".log")]
    assert logs in (
        [batch(base, b"old") for base in (0, 10, 20, 30)],
        [batch(0, b"new") + batch(20, b"new"), batch(30, b"old")],
    )


def test_swap_files_without_their_log_were_never_decided(directory: Path) -> None:
    (directory / f"{0:020d}.index.swap").write_bytes(b"new")
    recover_swaps(RealDisk(), str(directory))
    assert (directory / f"{0:020d}.index").read_bytes() == b"old.index"
    assert names(directory) == {
        f"{base:020d}{suffix}" for base in (0, 10, 20, 30) for suffix in (".log", ".index", ".timeindex", ".txnindex")
    }


def test_a_decided_empty_segment_replaces_its_namesake(directory: Path) -> None:
    (directory / f"{10:020d}.log.swap").touch()
    recover_swaps(RealDisk(), str(directory))
    assert (directory / f"{10:020d}.log").read_bytes() == b""
    assert not (directory / f"{10:020d}.index").exists()


def test_a_writer_starts_over_what_was_there_and_indexes_what_it_writes(directory: Path) -> None:
    writer = SegmentWriter(RealDisk(), str(directory), 0, 100)
    for base in range(0, 50, 10):
        data = batch(base, b"x" * 20)
        writer.append(data, read_header(data).last_offset, base)
    writer.finish([])
    size = len(batch(0, b"x" * 20))
    assert (directory / f"{0:020d}.log.cleaned").stat().st_size == 5 * size == writer.size_bytes
    assert (directory / f"{0:020d}.index.cleaned").stat().st_size == 4 * 8
    assert (directory / f"{0:020d}.timeindex.cleaned").stat().st_size == 4 * 12


def test_large_output_is_written_in_pieces(directory: Path) -> None:
    writes: list[int] = []

    class CountingFile:
        def __init__(self, file: File) -> None:
            self._file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def write_at(self, buffers: Sequence[Buffer], offset: int) -> int:
            writes.append(offset)
            return self._file.write_at(buffers, offset)

    class CountingDisk(RealDisk):
        def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
            counting: File = CountingFile(super().open(path, create=create, writable=writable))  # type: ignore[assignment]  # every method is there
            return counting

    writer = SegmentWriter(CountingDisk(), str(directory), 0, 4096)
    for number in range(8):
        writer.append(bytes(300_000), number, 1)
    writer.finish([])
    assert writes[:2] == [0, 1_200_000]
    assert (directory / f"{0:020d}.log.cleaned").stat().st_size == 2_400_000


def test_write_back_begins_long_before_the_sync(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(RealFile, "start_writeback", lambda _, offset, length: asked.append((offset, length)))
    writer = SegmentWriter(RealDisk(), str(directory), 0, 4096)
    for number in range(20):
        writer.append(bytes(1 << 20), number, 1)
    writer.finish([])
    assert asked == [(0, WRITE_BACK_BYTES), (WRITE_BACK_BYTES, WRITE_BACK_BYTES)]


def logs_of(disk: Disk) -> list[bytes]:
    return [disk.read_bytes(f"/log/{name}") for name in disk.list_directory("/log") if name.endswith(".log")]


def written_by_hand(disk: Disk) -> CleaningJob:
    """Three closed segments and an active one, durable; every key comes again in the third."""
    disk.make_directories("/log")
    disk.sync_directory("/")
    segments = []
    for base in (0, 10, 20, 30):
        file = disk.open(f"/log/{base:020d}.log", create=True)
        data = batch(base, b"old")
        file.write_at([data], 0)
        file.sync()
        file.close()
        segments.append(SegmentInfo(base, base + 10, len(data)))
    disk.sync_directory("/log")
    return CleaningJob(
        directory="/log",
        segments=segments[:3],
        first_dirty=0,
        now_ms=1,
        delete_retention_ms=1,
        segment_bytes=1 << 20,
        segment_index_bytes=1 << 20,
        index_interval_bytes=100,
        dedupe_buffer_bytes=1 << 20,
    )


def clean_and_swap(disk: Disk, job: CleaningJob) -> None:
    for cleaned in clean(disk, job).cleaned:
        condemned = swap_files(disk, job.directory, cleaned)
        disk.sync_directory(job.directory)
        for path in condemned:
            disk.unlink(path)


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_at_any_operation_leaves_the_old_or_the_new(seed: int) -> None:
    platter = Platter.seeded(seed)
    job = written_by_hand(SimulatedDisk(platter))
    old = logs_of(SimulatedDisk(platter))
    new: list[bytes] | None = None
    for operation in range(1, 200):
        platter = Platter.seeded(seed * 1000 + operation)
        job = written_by_hand(SimulatedDisk(platter))
        platter.crash_at_operation(operation)
        try:
            clean_and_swap(SimulatedDisk(platter), job)
        except SimulatedCrash:
            recover_swaps(SimulatedDisk(platter), "/log")
            found = logs_of(SimulatedDisk(platter))
            assert found == old or is_compacted(found)
        else:
            new = logs_of(SimulatedDisk(platter))
            break
    assert new is not None
    assert is_compacted(new)


def is_compacted(logs: list[bytes]) -> bool:
    """One record is left of the closed segments; the active one is whole."""
    return (
        len(logs) == 2 and [read_header(log).records_count for log in logs] == [1, 10] and logs[1] == batch(30, b"old")
    )
