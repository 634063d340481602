"""Where a node keeps the metadata: the log, the image's store beside it, and what their settings say."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.log.config import LogConfig
from ottla.log.errors import DamagedLogError
from ottla.log.log import Log
from ottla.log.names import METADATA_PARTITION
from ottla.quorum.begun_mark import QUORUM_STATE
from ottla.quorum.complaints import LOST_ITS_LOG
from ottla.quorum.election_store import QuorumStateError
from ottla.quorum.log_start import LogStartError
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.snapshots.limits import RetentionLimits, SnapshotLimits
from ottla.quorum.synced_mark import SyncedMark
from ottla.runtime.host import Host
from ottla.runtime.key_value import DamagedStoreError, KeyValueStore
from ottla.runtime.seldom import Seldom
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers, Timer

SYNC_INTERVAL_MS = 5_000
"""A restart after a crash reads again at most what was committed in this time."""
SYNC_CHECK_MS = 250
SYNC_PAIRS = 10_000
"""So much is synced at once: it waits in memory, and the more it is the longer the disk is busy with it."""

logger = logging.getLogger(__name__)


def open_metadata_log(host: Host, directory: str, config: ServerConfig, quorum_store: KeyValueStore) -> Log:
    """Expired by snapshots alone, and recovered from its start: it is short and its every byte counts. Raises LogStartError when a
    controller's has lost what was on stable storage; a plain broker acknowledged nothing and fetches it again."""
    settings = LogConfig(
        segment_bytes=config.integer("metadata.log.segment.bytes"),
        segment_ms=config.integer("metadata.log.segment.ms"),
        retention_ms=-1,
        max_message_bytes=2**31 - 1,
    )
    stable_offset = SyncedMark(quorum_store).offset if config.is_controller else 0
    try:
        return Log.open(
            host.disk,
            directory,
            METADATA_PARTITION,
            settings,
            now_ms=host.clock.wall_ms(),
            stable_offset=stable_offset,
        )
    except DamagedLogError as error:
        raise LogStartError(f"{error.message}; {LOST_ITS_LOG}") from error


def open_quorum_store(open_store: Callable[[str], KeyValueStore], directory: str) -> KeyValueStore:
    """What this node promised the others. Raises QuorumStateError, OSError."""
    try:
        return open_store(f"{directory}/{QUORUM_STATE}")
    except DamagedStoreError as error:
        raise QuorumStateError(str(error)) from error


@contextmanager
def image_named() -> Iterator[None]:
    """Whoever opens or reads the image's store says what to do when it is damaged."""
    try:
        yield
    except DamagedStoreError as error:
        message = f"{error}; the image is a copy: remove the file, and it is made anew from the log and its snapshots"
        raise DamagedStoreError(message) from error


def snapshot_limits(config: ServerConfig) -> SnapshotLimits:
    """When snapshots are taken and how long they and the log are kept."""
    return SnapshotLimits(
        after_bytes=config.integer("metadata.log.max.record.bytes.between.snapshots"),
        after_ms=config.integer("metadata.log.max.snapshot.interval.ms"),
        retention=RetentionLimits(
            config.integer("metadata.max.retention.bytes"), config.integer("metadata.max.retention.ms")
        ),
    )


class StoreSync:
    """Makes the image's store, and what is said of the log in the quorum's, durable every `SYNC_INTERVAL_MS`, or when much was
    written, on a thread, from now on until `stop`. It looks while there is something to be written, and else not at all."""

    def __init__(self, loader: MetadataLoader, quorum_store: KeyValueStore, timers: LoopTimers) -> None:
        self._loader = loader
        self._quorum_store = quorum_store
        self._timers = timers
        self._synced = loader.image.offset
        self._due_ms = timers.now_ms() + SYNC_INTERVAL_MS
        self._running: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        self._stopped = False
        self._failures = Seldom(logger)
        loader.on_published = self._look_soon

    def _look_soon(self) -> None:
        if self._timer is None and not self._stopped:
            self._timer = self._timers.call_later_ms(SYNC_CHECK_MS, self._check)

    def _check(self) -> None:
        self._timer = None
        offset, now_ms = self._loader.image.offset, self._timers.now_ms()
        if offset == self._synced:
            return
        is_due = now_ms >= self._due_ms or self._loader.unsynced >= SYNC_PAIRS
        if self._running is None and is_due:
            self._synced, self._due_ms = offset, now_ms + SYNC_INTERVAL_MS
            self._running = asyncio.get_running_loop().run_in_executor(None, self._sync)
            self._running.add_done_callback(self._done)
        else:
            self._look_soon()

    def _sync(self) -> None:
        self._quorum_store.sync()
        self._loader.sync()

    def _done(self, running: "asyncio.Future[None]") -> None:
        self._running = None
        error = None if running.cancelled() else running.exception()
        if error is not None:
            self._synced = -1  # the log still has it all; only a restart would take longer
            self._look_soon()
            self._failures.warn(
                "the metadata image could not be written to disk; the log has it, and it is tried again: %s", error
            )
        else:
            self._failures.forget()

    async def stop(self) -> None:
        """Returns when nobody uses the store any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None:
            await asyncio.wait([self._running])
