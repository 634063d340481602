"""The cleaner's own process: it answers, it dies cleanly, it waits when told to."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from ottla.log.compaction.cleaner import CleaningJob
from ottla.log.compaction.plan import SegmentInfo
from ottla.log.compaction.worker import CleanerProcess, Outcome, Pacer
from ottla.log.records import Record, encode_batch
from ottla.runtime.clock import SystemClock


def job_of(directory: Path, values: list[bytes]) -> CleaningJob:
    data = b"".join(bytes(encode_batch([Record(i, 5, b"k", value)], base_offset=i)) for i, value in enumerate(values))
    (directory / f"{0:020d}.log").write_bytes(data)
    return CleaningJob(
        directory=str(directory),
        segments=[SegmentInfo(0, len(values), len(data))],
        first_dirty=0,
        now_ms=1,
        delete_retention_ms=1,
        segment_bytes=1 << 30,
        segment_index_bytes=1 << 20,
        index_interval_bytes=4096,
        dedupe_buffer_bytes=1 << 20,
        last_records={7: (1, 0)},
    )


def test_a_worker_cleans_and_answers(tmp_path: Path) -> None:
    job = job_of(tmp_path, [b"1", b"2", b"3"])
    outcome = CleanerProcess(job).wait()
    assert outcome.result is not None
    assert outcome.result.end_offset == 3
    assert (
        (tmp_path / f"{0:020d}.log.cleaned").stat().st_size
        == outcome.result.cleaned[0].size_bytes
        < job.segments[0].size_bytes
    )


def test_damage_is_told_apart_from_failure(tmp_path: Path) -> None:
    job = job_of(tmp_path, [b"1", b"2"])
    (tmp_path / f"{0:020d}.log").write_bytes((tmp_path / f"{0:020d}.log").read_bytes()[:-1] + b"\xaa")
    damaged = CleanerProcess(job).wait()
    assert damaged.damage is not None
    assert "CRC" in damaged.damage
    (tmp_path / f"{0:020d}.log").unlink()
    assert CleanerProcess(job).wait().failure is not None


def test_a_killed_worker_is_a_failure_and_leaves_only_cleaned_files(tmp_path: Path) -> None:
    job = job_of(tmp_path, [b"x" * 100_000] * 40)
    process = CleanerProcess(job, bytes_per_second=1000)
    deadline = time.monotonic() + 60
    process.kill()
    outcome = process.wait()
    assert time.monotonic() < deadline
    assert outcome.failure is not None
    assert "-9" in outcome.failure
    assert {name.name for name in tmp_path.iterdir()} <= {f"{0:020d}.log", f"{0:020d}.log.cleaned"}


def test_a_worker_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    job = job_of(tmp_path, [b"x" * 100_000] * 40)
    command = [sys.executable, "-m", "ottla.log.compaction.worker", "0"]
    process = subprocess.run(
        command, input=msgspec.json.encode(job) + b"\n", capture_output=True, timeout=120, check=False
    )
    assert (process.returncode, process.stdout) == (1, b"")  # its input ended with the job: nobody waits for the answer


@pytest.mark.parametrize("before", [True, False], ids=["before it has its job", "while it waits"])
def test_a_worker_that_was_begun_too_slow_is_let_go(tmp_path: Path, before: bool) -> None:
    process = CleanerProcess(job_of(tmp_path, [b"x" * 100_000] * 40), bytes_per_second=1)
    try:
        with ThreadPoolExecutor(1) as threads:
            if before:
                process.set_speed(0)
            outcome = threads.submit(process.wait)
            if not before:
                process.set_speed(0)
            assert outcome.result(60).result is not None
    finally:
        process.kill()
    process.set_speed(5)  # nothing hears it


def test_the_pacer_hears_of_a_speed_and_of_the_parents_end_while_it_waits() -> None:
    reading, writing = os.pipe()
    pacer = Pacer(1, SystemClock(), reading, b"2\n10")
    os.write(writing, b"00000000\n")
    pacer(1_000_000)  # would take six days
    os.write(writing, b"1\n")
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(pacer, 1_000_000)
        os.close(writing)
        with pytest.raises(SystemExit):
            ended.result(60)
    os.close(reading)


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


@pytest.mark.parametrize(("rate", "waits"), [(1_000_000, [1.0, 2.0]), (0, [])])
def test_the_pacer_waits_as_long_as_the_rate_demands(
    monkeypatch: pytest.MonkeyPatch, rate: int, waits: list[float]
) -> None:
    reading, writing = os.pipe()
    pacer = Pacer(rate, ManualClock(), reading)
    waited: list[float] = []
    monkeypatch.setattr(pacer, "wait", waited.append)
    pacer(1_000_000)
    pacer(1_000_000)
    assert waited == waits
    os.close(writing)
    with pytest.raises(SystemExit):
        pacer(1)
    os.close(reading)


def test_an_outcome_travels_as_json() -> None:
    outcome = Outcome(failure="no space")
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=Outcome) == outcome
