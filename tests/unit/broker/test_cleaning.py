"""The shell of compaction, with a cleaner and workers that do what the test says."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.cleaning import Cleaning, Worker, cleaner_settings
from ottla.log.compaction.cleaner import CleaningJob, CleaningResult
from ottla.log.compaction.manager import CleanerSettings
from ottla.log.compaction.worker import Outcome
from ottla.log.config import LogConfig
from ottla.log.names import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.server import ServerConfig
from tests.unit.broker.handlers.conftest import Site

COMPACTED = LogConfig(cleanup_policy=("compact",))
DONE = Outcome(result=CleaningResult(end_offset=10, cleaned=[], read_bytes=100, written_bytes=1))
FAILED = Outcome(failure="no luck")
WAIT_S = 5


def log(topic: str, config: LogConfig = COMPACTED) -> Any:
    return SimpleNamespace(partition=TopicPartition(topic, 0), config=config)


class FakeWorker:
    """Works until it is told to end, or killed."""

    def __init__(self, topic: str, at_work: threading.Semaphore) -> None:
        self.topic = topic
        self._at_work = at_work
        self.killed = False
        self.speeds: list[int] = []
        self._end = threading.Event()
        self._outcome = FAILED

    def wait(self) -> Outcome:
        self._at_work.release()
        assert self._end.wait(WAIT_S), f"the worker of {self.topic} was never ended"
        return self._outcome

    def kill(self) -> None:
        self.killed = True
        self._end.set()

    def set_speed(self, bytes_per_second: int) -> None:
        self.speeds.append(bytes_per_second)

    def finish(self, outcome: Outcome = DONE) -> None:
        self._outcome = outcome
        self._end.set()


class FakeCleaner:
    """Every log is due until it was installed; as many at once as there are threads."""

    worker_bytes_per_second = 17

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.running: dict[TopicPartition, Any] = {}
        self.foretold: list[str] = []
        self.installed: list[str] = []
        self.recorded: list[str] = []
        self.cancelled: list[str] = []
        self.foretell_error: OSError | None = None
        self.install_error: Exception | None = None
        self.record_error: OSError | None = None
        self.while_recording: Callable[[], None] = lambda: None
        self.next_error: Exception | None = None

    def next_task(self, logs: Iterable[Any], now_ms: int) -> Any:
        if self.next_error is not None:
            raise self.next_error
        for each in logs:
            due = each.partition not in self.running and each.partition.topic not in self.installed
            if due and len(self.running) < self.threads:
                task = self.running[each.partition] = SimpleNamespace(log=each, job=each.partition.topic)
                return task
        return None

    def configure(self, settings: CleanerSettings) -> None:
        self.threads = settings.threads
        self.worker_bytes_per_second = settings.io_bytes_per_second or 17

    def foretell(self, task: Any, outcome: Outcome) -> None:
        assert outcome.result is not None
        assert task.log.partition.topic not in self.installed
        if self.foretell_error is not None:
            raise self.foretell_error
        self.foretold.append(task.log.partition.topic)

    def install(self, task: Any, outcome: Outcome) -> bool:
        if self.running.pop(task.log.partition, None) is not task:
            return False
        if self.install_error is not None:
            raise self.install_error
        if outcome.result is not None:
            self.installed.append(task.log.partition.topic)
        return outcome.result is not None

    def record(self, task: Any) -> None:
        self.while_recording()
        if self.record_error is not None:
            raise self.record_error
        self.recorded.append(task.log.partition.topic)

    def cancel(self, partition: TopicPartition) -> None:
        self.cancelled.append(partition.topic)
        self.running.pop(partition, None)


class Bench:
    """A cleaning over fake parts. Time passes with `tick`."""

    def __init__(self, *topics: str, threads: int = 1) -> None:
        self.logs = [log(topic) for topic in topics]
        self.cleaner = FakeCleaner(threads)
        self.workers: list[FakeWorker] = []
        self._at_work = threading.Semaphore(0)
        self._seen = 0
        self.limits: list[int] = []
        self.disk_errors: list[str] = []
        self.start_error: OSError | None = None
        self.while_starting: Callable[[], None] = lambda: None
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.cancelled = 0
        self.cleaning = Cleaning(
            cast(Any, self.cleaner),
            CleanerSettings(threads=threads, backoff_ms=250),
            lambda: self.logs,
            cast(Any, SimpleNamespace(call_later_ms=self._call_later)),
            SystemClock(),
            self._start_worker,
            lambda partition, error: self.disk_errors.append(f"{partition}: {error}"),
            lambda partition: None,
        )
        self.cleaning.start()

    def _call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        self.timers.append((delay_ms, callback))
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self.cancelled += 1

    def _start_worker(self, job: CleaningJob, bytes_per_second: int) -> Worker:
        if self.start_error is not None:
            raise self.start_error
        self.while_starting()
        worker = FakeWorker(str(job), self._at_work)
        self.workers.append(worker)
        self.limits.append(bytes_per_second)
        return worker

    def tick(self) -> None:
        delay_ms, callback = self.timers.pop(0)
        assert delay_ms == 250
        callback()

    async def working(self, count: int) -> list[str]:
        """Topics of the first ``count`` workers, once they are at work."""
        while self._seen < count:
            assert await asyncio.to_thread(self._at_work.acquire, timeout=WAIT_S)
            self._seen += 1
        return [worker.topic for worker in self.workers]

    async def settled(self) -> None:
        """Until no cleaning is under way."""
        async with asyncio.timeout(WAIT_S):
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)


def run(bench: Callable[[], Bench], test: Callable[[Bench], Awaitable[None]]) -> None:
    async def whole() -> None:
        made = bench()
        try:
            await test(made)
        finally:
            await made.cleaning.stop()

    asyncio.run(whole())


def test_a_due_log_is_cleaned_installed_and_recorded() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        assert await bench.working(1) == ["a"]
        assert bench.limits == [17]
        bench.workers[0].finish()
        await bench.settled()
        assert (bench.cleaner.foretold, bench.cleaner.installed, bench.cleaner.recorded) == (["a"], ["a"], ["a"])

    run(lambda: Bench("a"), test)


def test_what_the_disk_does_not_know_of_is_not_installed() -> None:
    async def test(bench: Bench) -> None:
        bench.cleaner.foretell_error = OSError("no space")
        bench.tick()
        await bench.working(1)
        bench.workers[0].finish()
        await bench.settled()
        assert (bench.cleaner.installed, bench.disk_errors) == ([], ["a-0: no space"])
        assert not bench.cleaner.running, "it is tried again"

    run(lambda: Bench("a"), test)


def test_nothing_is_cleaned_before_the_back_off_and_it_is_asked_again_after_each() -> None:
    async def test(bench: Bench) -> None:
        assert not bench.cleaner.running
        bench.logs.clear()
        bench.tick()
        assert not bench.cleaner.running
        bench.logs.append(log("late"))
        bench.tick()
        assert [each.topic for each in bench.cleaner.running] == ["late"]

    run(lambda: Bench("a"), test)


def test_a_cleaning_of_a_topic_that_is_not_compacted_any_more_is_ended() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        assert await bench.working(2) == ["a", "b"]
        bench.logs[0].config = LogConfig()
        bench.tick()
        assert [worker.killed for worker in bench.workers] == [True, False]

    run(lambda: Bench("a", "b", threads=2), test)


def test_logs_that_are_not_compacted_are_not_offered() -> None:
    async def test(bench: Bench) -> None:
        bench.logs[0] = log("a", LogConfig())
        bench.tick()
        assert not bench.cleaner.running

    run(lambda: Bench("a"), test)


def test_as_many_workers_run_at_once_as_there_are_threads() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        assert await bench.working(2) == ["a", "b"]
        bench.workers[1].finish()
        assert await bench.working(3) == ["a", "b", "c"]  # at once, without waiting for the back-off

    run(lambda: Bench("a", "b", "c", threads=2), test)


def test_a_failed_cleaning_waits_for_the_next_turn() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        await bench.working(1)
        bench.workers[0].finish(FAILED)
        await bench.settled()
        assert (len(bench.workers), bench.cleaner.recorded) == (1, [])
        bench.tick()
        assert await bench.working(2) == ["a", "a"]

    run(lambda: Bench("a"), test)


def test_a_worker_that_cannot_be_started_is_a_failed_cleaning() -> None:
    async def test(bench: Bench) -> None:
        bench.start_error = OSError("no memory")
        bench.tick()
        await bench.settled()
        bench.start_error = None
        bench.tick()
        assert await bench.working(1) == ["a"]

    run(lambda: Bench("a"), test)


def test_the_worker_of_a_log_that_goes_is_killed_and_its_result_unused() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        await bench.working(1)
        bench.cleaning.cancel(TopicPartition("a", 0))
        assert bench.workers[0].killed
        bench.workers[0].finish()
        await bench.settled()
        assert (bench.cleaner.cancelled, bench.cleaner.installed, bench.cleaner.recorded) == (["a"], [], [])

    run(lambda: Bench("a"), test)


def test_a_log_that_comes_back_is_not_cleaned_before_its_old_worker_is_gone() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        await bench.working(1)
        bench.cleaning.cancel(TopicPartition("a", 0))
        bench.tick()
        assert not bench.cleaner.running
        await bench.settled()
        bench.tick()
        assert await bench.working(2) == ["a", "a"]

    run(lambda: Bench("a"), test)


def test_a_log_that_goes_while_its_worker_starts_has_it_killed() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        bench.cleaning.cancel(TopicPartition("a", 0))
        await bench.settled()
        assert all(worker.killed for worker in bench.workers)
        assert len(bench.workers) == 1

    run(lambda: Bench("a"), test)


def test_a_log_that_goes_while_its_cleaning_is_recorded_is_forgotten_and_no_disk_error() -> None:
    async def test(bench: Bench) -> None:
        loop = asyncio.get_running_loop()

        def while_recording() -> None:
            gone = threading.Event()
            loop.call_soon_threadsafe(bench.cleaning.cancel, TopicPartition("a", 0))
            loop.call_soon_threadsafe(gone.set)
            assert gone.wait(WAIT_S)

        bench.cleaner.while_recording = while_recording
        bench.cleaner.record_error = OSError("no such directory")
        bench.tick()
        await bench.working(1)
        bench.workers[0].finish()
        await bench.settled()
        assert bench.cleaner.cancelled == ["a"]
        assert bench.disk_errors == []

    run(lambda: Bench("a"), test)


def test_what_the_disk_says_when_a_cleaning_is_recorded_is_passed_on() -> None:
    async def test(bench: Bench) -> None:
        bench.cleaner.record_error = OSError("the disk is gone")
        bench.tick()
        await bench.working(1)
        bench.workers[0].finish()
        await bench.settled()
        assert bench.disk_errors == ["a-0: the disk is gone"]

    run(lambda: Bench("a"), test)


@pytest.mark.parametrize("error", [OSError("torn"), KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "torn")])
def test_a_result_that_cannot_be_taken_costs_only_that_cleaning(error: Exception) -> None:
    async def test(bench: Bench) -> None:
        bench.cleaner.install_error = error
        bench.tick()
        await bench.working(1)
        bench.workers[0].finish()
        await bench.settled()
        bench.cleaner.install_error = None
        bench.tick()
        assert await bench.working(2) == ["a", "a"]

    run(lambda: Bench("a"), test)


@pytest.mark.parametrize("error", [OSError("unreadable"), KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "unreadable")])
def test_a_log_that_cannot_be_looked_at_does_not_end_the_turns(error: Exception) -> None:
    async def test(bench: Bench) -> None:
        bench.cleaner.next_error = error
        bench.tick()
        bench.cleaner.next_error = None
        bench.tick()
        assert await bench.working(1) == ["a"]

    run(lambda: Bench("a"), test)


def test_the_end_kills_the_workers_and_waits_for_them() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        await bench.working(2)
        await bench.cleaning.stop()
        assert [worker.killed for worker in bench.workers] == [True, True]
        assert bench.cancelled == 1
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(lambda: Bench("a", "b", threads=2), test)


def test_a_worker_that_starts_while_all_ends_is_killed() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        await bench.cleaning.stop()
        assert [worker.killed for worker in bench.workers] == [True]

    run(lambda: Bench("a"), test)


def test_a_result_that_came_before_the_end_is_recorded_and_no_other_begun() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        await bench.working(1)
        bench.workers[0].finish()
        await bench.cleaning.stop()
        assert bench.cleaner.recorded == ["a"]
        assert len(bench.workers) == 1

    run(lambda: Bench("a", "b"), test)


def test_threads_that_are_given_at_run_time_go_to_work_with_the_next_turn() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        await bench.working(1)
        bench.cleaning.configure(CleanerSettings(threads=3, backoff_ms=250))
        bench.timers.pop(0)  # of the pause of before
        assert bench.cancelled == 1
        bench.tick()
        assert sorted(await bench.working(3)) == ["a", "b", "c"]
        bench.cleaning.configure(CleanerSettings(threads=0, backoff_ms=250))
        for worker in bench.workers:
            worker.finish()
        await bench.settled()
        assert sorted(bench.cleaner.recorded) == ["a", "b", "c"], "what is at work is not cut short"
        bench.timers = bench.timers[-1:]
        bench.tick()
        assert len(bench.workers) == 3

    run(lambda: Bench("a", "b", "c", "d"), test)


def test_a_worker_that_runs_takes_another_speed_at_once() -> None:
    async def test(bench: Bench) -> None:
        bench.tick()
        await bench.working(1)
        bench.cleaning.configure(CleanerSettings(io_bytes_per_second=1, backoff_ms=250))
        bench.cleaning.configure(CleanerSettings(io_bytes_per_second=1, backoff_ms=500))
        bench.cleaning.configure(CleanerSettings(io_bytes_per_second=1000, backoff_ms=250))
        assert bench.workers[0].speeds == [1, 1000]

    run(lambda: Bench("a"), test)


def test_a_speed_that_comes_while_a_worker_is_started_is_not_lost() -> None:
    async def test(bench: Bench) -> None:
        bench.while_starting = lambda: bench.cleaner.configure(CleanerSettings(io_bytes_per_second=5))
        bench.tick()
        await bench.working(1)
        assert (bench.limits, bench.workers[0].speeds) == ([17], [5])

    run(lambda: Bench("a"), test)


def test_another_pause_counts_from_now() -> None:
    async def test(bench: Bench) -> None:
        bench.cleaning.configure(CleanerSettings(backoff_ms=7))
        assert [delay_ms for delay_ms, _ in bench.timers] == [250, 7]
        assert bench.cancelled == 1

    run(lambda: Bench("a"), test)


def settings(**texts: str) -> ServerConfig:
    return Site(**texts).config


def test_the_cleaner_follows_the_servers_settings() -> None:
    config = settings(
        log_cleaner_threads="3",
        log_cleaner_dedupe_buffer_size="300000000",
        log_cleaner_io_max_bytes_per_second="5000000.5",
        log_cleaner_backoff_ms="100",
    )
    assert cleaner_settings(config) == CleanerSettings(
        threads=3, dedupe_buffer_bytes=300_000_000, io_bytes_per_second=5_000_000, backoff_ms=100
    )


def test_by_default_one_worker_runs_without_a_limit() -> None:
    assert cleaner_settings(settings()) == CleanerSettings(io_bytes_per_second=0)


def test_the_cleaner_can_be_turned_off_for_good_or_until_it_has_threads() -> None:
    assert cleaner_settings(settings(log_cleaner_enable="false")) is None
    assert cleaner_settings(settings(log_cleaner_threads="0")) == CleanerSettings(threads=0)


@pytest.mark.parametrize("limit", ["0.5", "-3", "-inf"])
def test_a_limit_however_small_is_one_for_every_worker(limit: str) -> None:
    config = settings(log_cleaner_threads="2", log_cleaner_io_max_bytes_per_second=limit)
    found = cleaner_settings(config)
    assert found is not None
    assert found.io_bytes_per_second // found.threads == 1


@pytest.mark.parametrize(("threads", "buffer"), [("1", "-1"), ("1", "0"), ("200", "134217728")])
def test_every_worker_has_room_for_the_keys_of_more_than_a_batch(threads: str, buffer: str) -> None:
    """It would copy the log for each batch. Kafka refuses what leaves a worker less than this."""
    found = cleaner_settings(settings(log_cleaner_threads=threads, log_cleaner_dedupe_buffer_size=buffer))
    assert found is not None
    assert found.dedupe_buffer_bytes // found.threads == 1 << 20
