"""The shell of compaction: starts workers when logs are due, takes in what they made, ends them when a log goes.

What is due and what is done with a result is `ottla.log.compaction.manager`'s; the work itself is a worker's, which in
production is a process. Here are only the timer, the threads that wait for workers, and the end of it all.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ottla.log.compaction.cleaner import CleaningJob
from ottla.log.compaction.manager import CleanableLog, CleanerSettings, CleaningTask, LogCleaner
from ottla.log.compaction.worker import Outcome
from ottla.log.names import TopicPartition
from ottla.runtime.clock import Clock
from ottla.runtime.errors import KafkaError
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.threads import CLEANERS, Threads
from ottla.runtime.timers import LoopTimers, Timer

logger = logging.getLogger(__name__)

IO_UNLIMITED = 1 << 62
"""Bytes a second above which a limit is none; Kafka's default is the largest double."""

BUFFER_BYTES_MIN = 1 << 20
"""Of each worker; Kafka refuses less. A log is copied anew each time that the map of its keys is full: without room, for each batch."""


class Worker(Protocol):
    """One cleaning at work. `wait` blocks until it ended, also by `kill`; both may be called from any thread."""

    def wait(self) -> Outcome: ...
    def kill(self) -> None: ...
    def set_speed(self, bytes_per_second: int) -> None:
        """Another one than it was started with (0: no limit). For the loop: it waits for nothing, and a worker that ended takes it."""


StartWorker = Callable[[CleaningJob, int], Worker]
"""Starts a worker that may read and write so many bytes a second (0: no limit). Called on a thread; may raise OSError."""


def cleaner_settings(config: ServerConfig) -> CleanerSettings | None:
    """``log.cleaner.*``; None when nothing is ever to be cleaned. Without threads nothing is until some are given."""
    threads = config.integer("log.cleaner.threads")
    if not config.flag("log.cleaner.enable"):
        return None
    bytes_per_second = config.number("log.cleaner.io.max.bytes.per.second")
    return CleanerSettings(
        threads=threads,
        dedupe_buffer_bytes=max(config.integer("log.cleaner.dedupe.buffer.size"), threads * BUFFER_BYTES_MIN),
        io_bytes_per_second=0 if bytes_per_second >= IO_UNLIMITED else int(max(threads, bytes_per_second)),
        backoff_ms=max(1, config.integer("log.cleaner.backoff.ms")),
    )


class _Cleaning:
    """A task and its worker, once there is one. ``forgotten``: the log is not there any more as it was."""

    def __init__(self, task: CleaningTask) -> None:
        self.task = task
        self.worker: Worker | None = None
        self.forgotten = False

    def kill(self) -> None:
        if self.worker is not None:
            self.worker.kill()


class Cleaning:
    """Runs up to ``log.cleaner.threads`` cleanings at once. All methods are for the loop."""

    def __init__(
        self,
        cleaner: LogCleaner,
        settings: CleanerSettings,
        logs: Callable[[], Iterable[CleanableLog]],
        timers: LoopTimers,
        clock: Clock,
        start_worker: StartWorker,
        on_disk_error: Callable[[TopicPartition, OSError], None],
        on_damage: Callable[[TopicPartition], None],
    ) -> None:
        """``logs`` answers the logs there are now; ``on_disk_error`` is told what a log's directory answered,
        ``on_damage`` of a log that a worker found damaged."""
        self._cleaner = cleaner
        self._settings = settings
        self._logs = logs
        self._timers = timers
        self._clock = clock
        self._start_worker = start_worker
        self._on_disk_error = on_disk_error
        self._on_damage = on_damage
        self._timer: Timer | None = None
        self._stopped = False
        self._running: dict[TopicPartition, _Cleaning] = {}  # until the last trace of a worker is gone
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._recording = asyncio.Lock()
        self._threads = Threads(CLEANERS)

    def configure(self, settings: CleanerSettings) -> None:
        """Other settings, from the next cleaning on; the speed at once, or one that was begun too slow would keep its thread for days."""
        self._settings = settings
        before = self._cleaner.worker_bytes_per_second
        self._cleaner.configure(settings)
        speed = self._cleaner.worker_bytes_per_second
        if speed != before:
            for running in self._running.values():
                if running.worker is not None:
                    running.worker.set_speed(speed)
        if self._timer is not None and not self._stopped:
            self._timer.cancel()
            self.start()

    def start(self) -> None:
        """Looks for work every ``log.cleaner.backoff.ms`` from now on."""
        self._timer = self._timers.call_later_ms(self._settings.backoff_ms, self._tick)

    def cancel(self, partition: TopicPartition) -> None:
        """The log is deleted, about to be cut, or lost: what is being cleaned is no more what the log holds."""
        running = self._running.get(partition)
        if running is not None:
            running.forgotten = True
            running.kill()
        self._cleaner.cancel(partition)

    async def stop(self) -> None:
        """Ends every worker, and returns when none is left. The unfinished work is lost, and nothing else."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for running in self._running.values():
            running.kill()
        await asyncio.gather(*self._tasks)
        self._threads.close()

    def _tick(self) -> None:
        self.start()
        for partition, running in self._running.items():
            if not running.task.log.config.compacted:
                self.cancel(partition)  # nobody would take what it makes
        self._begin_due()

    def _begin_due(self) -> None:
        try:
            while not self._stopped:
                task = self._cleaner.next_task(self._candidates(), self._clock.wall_ms())
                if task is None:
                    return
                self._begin(task)
        except (KafkaError, OSError) as error:
            logger.warning("Cannot tell what to clean: %s", error)

    def _candidates(self) -> Iterator[CleanableLog]:
        return (log for log in self._logs() if log.config.compacted and log.partition not in self._running)

    def _begin(self, task: CleaningTask) -> None:
        running = self._running[task.log.partition] = _Cleaning(task)
        work = asyncio.get_running_loop().create_task(self._clean(running), name=f"cleaning {task.log.partition}")
        self._tasks[work] = None
        work.add_done_callback(self._tasks.pop)

    async def _clean(self, running: _Cleaning) -> None:
        try:
            outcome = await self._foretold(running, await self._outcome(running))
            installed = self._install(running, outcome)
            if installed:
                await self._record(running)
        finally:
            del self._running[running.task.log.partition]
        if installed:
            self._begin_due()  # after a failure only with the next turn, or it would be tried without end

    async def _outcome(self, running: _Cleaning) -> Outcome:
        limit = self._cleaner.worker_bytes_per_second
        try:
            running.worker = await self._threads.run(self._start_worker, running.task.job, limit)
            if running.forgotten or self._stopped:
                running.worker.kill()
            if self._cleaner.worker_bytes_per_second != limit:  # it changed meanwhile
                running.worker.set_speed(self._cleaner.worker_bytes_per_second)
            return await self._threads.run(running.worker.wait)
        except Exception as error:  # noqa: BLE001 - whatever became of a worker, the others go on
            return Outcome(failure=f"{type(error).__name__}: {error}")

    async def _foretold(self, running: _Cleaning, outcome: Outcome) -> Outcome:
        """The outcome, once the disk knows that it will be installed."""
        async with self._recording:
            try:
                if outcome.result is not None and not running.forgotten:
                    await self._threads.run(self._cleaner.foretell, running.task, outcome)
            except OSError as error:
                if not running.forgotten:
                    self._on_disk_error(running.task.log.partition, error)
                return Outcome(failure=str(error))
        return outcome

    def _install(self, running: _Cleaning, outcome: Outcome) -> bool:
        partition = running.task.log.partition
        if outcome.result is None and not (running.forgotten or self._stopped):
            logger.warning("%s was not cleaned: %s", partition, outcome.damage or outcome.failure)
            if outcome.damage:
                self._on_damage(partition)
        try:
            installed = self._cleaner.install(running.task, outcome)
        except KafkaError as error:  # the directory noted it
            logger.warning("%s: the cleaned log was not taken: %s", partition, error.message)
            return False
        except OSError as error:
            self._on_disk_error(partition, error)
            return False
        result = outcome.result
        if installed and result is not None:
            end, read, written = result.end_offset, result.read_bytes, result.written_bytes
            logger.info("Cleaned %s to offset %d: %d bytes became %d", partition, end, read, written)
        return installed

    async def _record(self, running: _Cleaning) -> None:
        partition = running.task.log.partition
        async with self._recording:
            if running.forgotten:
                return
            try:
                await self._threads.run(self._cleaner.record, running.task)
            except OSError as error:
                if not running.forgotten:
                    self._on_disk_error(partition, error)
