"""Reads every log from time to time, slowly, so that damage is found while another replica can still heal it.

Kafka has nothing like it: there a damaged batch is noticed when somebody reads it, which for a follower is when it leads. The
reading is done on a thread, a piece at a time; what it suspects is looked at again on the loop, where the log stands still.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial

import msgspec

from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.names import TopicPartition
from ottla.log.segments.scrub import NOTHING, SegmentScrub
from ottla.runtime.errors import KafkaError
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers, Timer
from ottla.runtime.turns import on_thread

PIECE_BYTES = 256 << 10
RECHECK_BYTES = 1 << 20
EMPTY_LOGS_MAX = 1_000
"""So many are passed over in one turn of the loop."""
FIRST_PASS_MS = 10_000
"""After a start: what a process finds on its disks it has not written."""

OnDamage = Callable[[TopicPartition, DamagedLogError], None]

logger = logging.getLogger(__name__)


class ScrubSettings(msgspec.Struct, frozen=True):
    """The settings ``ottla.log.scrub.*``. An interval of 0 turns it off."""

    interval_ms: int
    bytes_per_second: int

    @classmethod
    def of(cls, config: ServerConfig) -> "ScrubSettings":
        return cls(config.integer("ottla.log.scrub.interval.ms"), config.integer("ottla.log.scrub.bytes.per.second"))


class Scrubbing:
    """Reads all logs, a pass at a time. ``logs`` is what there is at any moment; all methods are for the loop."""

    def __init__(
        self, logs: Mapping[TopicPartition, Log], settings: ScrubSettings, timers: LoopTimers, on_damage: OnDamage
    ) -> None:
        self._logs = logs
        self._settings = settings
        self._timers = timers
        self._on_damage = on_damage
        self._timer: Timer | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        """Begins the first pass soon, and each next one an interval after the end of the one before."""
        if self._settings.interval_ms:
            self._begin_in(min(self._settings.interval_ms, FIRST_PASS_MS))

    def look_at(self, partition: TopicPartition) -> None:
        """Somebody suspects damage in this log: it is read now."""
        self._run(self._scrub(partition), f"scrubbing {partition}")

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin_in(self, delay_ms: int) -> None:
        self._timer = self._timers.call_later_ms(delay_ms, lambda: self._run(self._pass(), "scrubbing"))

    def _run(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _pass(self) -> None:
        for number, (partition, log) in enumerate(list(self._logs.items())):
            if log.log_start_offset < log.log_end_offset:
                await self._scrub(partition)
                await asyncio.sleep(0)
            elif number % EMPTY_LOGS_MAX == 0:
                await asyncio.sleep(0)
        self._begin_in(self._settings.interval_ms)

    async def _scrub(self, partition: TopicPartition) -> None:
        """Reads one log to its end, or to the first damage: what lies behind it will be fetched anew."""
        offset = 0
        try:
            while (log := self._logs.get(partition)) is not None:
                scrub = log.scrub_from(offset)
                if scrub is None:
                    return
                await self._read(scrub)
                if self._logs.get(partition) is not log:
                    return
                if scrub.suspect != NOTHING:
                    log.recheck(max(scrub.suspect, log.log_start_offset), RECHECK_BYTES)
                    return  # the log was changed while it was read: the next pass comes by
                if scrub.index_is_wrong:
                    logger.warning("%s: an index was damaged and is made anew", scrub.path)
                    log.rebuild_indexes(scrub.base_offset)
                offset = scrub.following
        except DamagedLogError as damage:
            self._on_damage(partition, damage)
        except (KafkaError, OSError) as error:
            logger.info("%s was not scrubbed to its end: %s", partition, error)
        except Exception:
            logger.exception("%s was not scrubbed to its end, which is our mistake", partition)

    async def _read(self, scrub: SegmentScrub) -> None:
        try:
            over = False
            while not over:
                over = await on_thread(partial(scrub.step, PIECE_BYTES))
                await asyncio.sleep(scrub.bytes_read / self._settings.bytes_per_second)
        finally:
            scrub.close()
