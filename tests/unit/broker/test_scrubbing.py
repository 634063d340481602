"""When logs are read for damage, and who is told."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from ottla.broker.scrubbing import EMPTY_LOGS_MAX, FIRST_PASS_MS, Scrubbing, ScrubSettings
from ottla.log.config import LogConfig
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.records import Record, encode_batch
from ottla.log.segments.scrub import SegmentScrub
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.simulation.run import simulate
from ottla.runtime.timers import LoopTimers

HOUR_MS = 3_600_000
RECORDS = 50


class Bench:
    """Two logs on a simulated disk; ``found`` is what the scrub told of."""

    def __init__(self, loop: SimulationLoop, bytes_per_second: int = 1 << 20, interval_ms: int = HOUR_MS) -> None:
        self.platter = Platter.seeded(1)
        self.logs = {TopicPartition("flights", index): self.written(index) for index in range(2)}
        self.found: list[tuple[int, int]] = []
        settings = ScrubSettings(interval_ms, bytes_per_second)
        self.scrubbing = Scrubbing(self.logs, settings, LoopTimers(loop), self.damaged)

    def written(self, index: int) -> Log:
        disk = SimulatedDisk(self.platter)
        directory = f"/data/flights-{index}"
        disk.make_directories(directory)
        log = Log.open(disk, directory, TopicPartition("flights", index), LogConfig(), now_ms=0)
        for offset in range(RECORDS):
            log.append_as_follower(encode_batch([Record(offset, 1_000, None, b"x" * 1_000)], base_offset=offset))
        return log

    def damaged(self, partition: TopicPartition, damage: DamagedLogError) -> None:
        self.found.append((partition.partition, damage.offset))

    def flip(self, index: int, offset: int) -> None:
        log = self.logs[TopicPartition("flights", index)]
        self.platter.flip(log.active.path, log.active.find(offset)[0] + 100)


@pytest.mark.parametrize("index", [0, 1])
def test_damage_is_found_soon_after_the_start(index: int) -> None:
    async def program(loop: SimulationLoop) -> None:
        bench = Bench(loop)
        bench.flip(index, 30)
        bench.scrubbing.start()
        await asyncio.sleep(FIRST_PASS_MS / 1000 + 1)
        assert bench.found == [(index, 30)]
        await bench.scrubbing.stop()

    simulate(program, 1)


def test_damage_that_comes_later_is_found_in_a_later_pass() -> None:
    async def program(loop: SimulationLoop) -> None:
        bench = Bench(loop)
        bench.scrubbing.start()
        await asyncio.sleep(FIRST_PASS_MS / 1000 + 1)
        bench.flip(0, 7)
        await asyncio.sleep(HOUR_MS / 1000 - 2)
        assert bench.found == []
        await asyncio.sleep(5)
        assert bench.found == [(0, 7)]
        await bench.scrubbing.stop()

    simulate(program, 1, limit_s=2 * HOUR_MS / 1000)


def test_an_interval_of_zero_turns_it_off() -> None:
    async def program(loop: SimulationLoop) -> None:
        bench = Bench(loop, interval_ms=0)
        bench.flip(0, 7)
        bench.scrubbing.start()
        await asyncio.sleep(HOUR_MS / 1000)
        assert bench.found == []
        bench.scrubbing.look_at(TopicPartition("flights", 0))
        await asyncio.sleep(1)
        assert bench.found == [(0, 7)], "but who suspects something may ask"

    simulate(program, 1, limit_s=2 * HOUR_MS / 1000)


def test_it_reads_no_faster_than_it_may() -> None:
    async def program(loop: SimulationLoop) -> None:
        bench = Bench(loop, bytes_per_second=10_000)
        bench.flip(0, RECORDS - 1)
        bench.flip(1, RECORDS - 1)
        bench.scrubbing.start()
        await asyncio.sleep(FIRST_PASS_MS / 1000 + 5)
        assert bench.found == [], "the first log's 53 kB take more than five seconds"
        await asyncio.sleep(10)
        assert bench.found == [(0, RECORDS - 1), (1, RECORDS - 1)]
        await bench.scrubbing.stop()

    simulate(program, 1)


def test_logs_that_go_meanwhile_are_nobodys_trouble() -> None:
    async def program(loop: SimulationLoop) -> None:
        bench = Bench(loop)
        bench.flip(1, 7)
        bench.scrubbing.look_at(TopicPartition("flights", 1))
        bench.logs.clear()
        bench.scrubbing.look_at(TopicPartition("flights", 0))
        await asyncio.sleep(1)
        assert bench.found == []

    simulate(program, 1)


def test_thousands_of_empty_logs_are_passed_over_in_a_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(loop: SimulationLoop) -> None:
        bench = Bench(loop)
        disk = SimulatedDisk(bench.platter)
        for number in range(3 * EMPTY_LOGS_MAX):
            partition = TopicPartition("empty", number)
            bench.logs[partition] = Log.open(disk, f"/data/{partition}", partition, LogConfig(), now_ms=0)
        bench.logs[TopicPartition("last", 0)] = bench.written(2)
        bench.platter.flip(bench.logs[TopicPartition("last", 0)].active.path, 100)
        asked: list[TopicPartition] = []
        monkeypatch.setattr(bench.scrubbing, "_scrub", noting(asked, bench.scrubbing._scrub))
        bench.scrubbing.start()
        await asyncio.sleep(FIRST_PASS_MS / 1000 + 1)
        assert [partition.topic for partition in asked] == ["flights", "flights", "last"]
        assert bench.found == [(0, 0)]
        await bench.scrubbing.stop()

    simulate(program, 1)


def noting(
    asked: list[TopicPartition], scrub: Callable[[TopicPartition], Coroutine[None, None, None]]
) -> Callable[[TopicPartition], Coroutine[None, None, None]]:
    def noted(partition: TopicPartition) -> Coroutine[None, None, None]:
        asked.append(partition)
        return scrub(partition)

    return noted


def test_a_mistake_of_ours_in_one_log_does_not_end_the_scrubbing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody would read the others any more, in this pass or a later one, and nothing would say so."""
    scrub_from = Log.scrub_from

    def mistaken(log: Log, offset: int) -> SegmentScrub | None:
        if log.partition.partition == 0:
            raise IndexError("a mistake")
        return scrub_from(log, offset)

    async def program(loop: SimulationLoop) -> None:
        bench = Bench(loop)
        bench.flip(1, 7)
        with monkeypatch.context() as patch:
            patch.setattr(Log, "scrub_from", mistaken)
            bench.scrubbing.start()
            await asyncio.sleep(FIRST_PASS_MS / 1000 + 1)
        assert bench.found == [(1, 7)]
        assert "flights-0 was not scrubbed to its end, which is our mistake" in caplog.text
        bench.flip(0, 9)
        await asyncio.sleep(HOUR_MS / 1000 + 5)
        assert (0, 9) in bench.found
        await bench.scrubbing.stop()

    simulate(program, 1, limit_s=2 * HOUR_MS / 1000)
