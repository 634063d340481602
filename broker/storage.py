"""The shell around the logs: what has to happen to them from time to time, on the broker's timers."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ottla.broker.cleaning import Cleaning, StartWorker, cleaner_settings
from ottla.broker.deletions import Deletions
from ottla.broker.moves import DirectoryMoves
from ottla.broker.new_logs import NewLogs
from ottla.broker.topic_config import LogConfigs
from ottla.log.compaction.manager import LogCleaner
from ottla.log.compaction.worker import CleanerProcess
from ottla.log.config import LogConfig
from ottla.log.directories.checkpoints import CleanShutdown
from ottla.log.directories.directory import DirectoryState
from ottla.log.directories.manager import LogManager, ManagerSettings
from ottla.log.directories.roots import LogDirectoryError
from ottla.log.errors import StorageError
from ottla.log.log import Log
from ottla.log.names import TopicIdPartition, TopicPartition
from ottla.log.results import SyncTicket
from ottla.log.segments.open_files import OPEN_FILES_MAX
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.host import Host
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers, Repeated, Timer
from ottla.runtime.work_later import WorkLater

logger = logging.getLogger(__name__)

SPACE_CHECK_MS = 1_000
PURGE_CHECK_MS = 1_000
ROLLED_SYNC_MS = 1_000
FLUSH_CHECK_MS = 200
EXPIRY_LOGS_MAX = 200
RETENTION_LOGS_MAX = 500
EXPIRY_PAUSE_MS = 5
"""Producers expire, and segments grow too old, in so many logs at a time, and then requests have their turn."""

OnDirectoriesFailed = Callable[[list[bytes], list[TopicPartition]], None]
OnMoved = Callable[[Log, Log], None]
OnDamage = Callable[[TopicPartition], None]
OnShortened = Callable[[Log], None]


class Storage:
    """`LogStore` of the replica manager: adds the clock to what the log manager is asked, and runs its timers."""

    def __init__(
        self,
        config: ServerConfig,
        cluster_id: str,
        host: Host,
        timers: LoopTimers,
        image: MetadataImage,
        on_failed: OnDirectoriesFailed,
        on_moved: OnMoved,
        on_damage: OnDamage,
        on_shortened: OnShortened,
        start_cleaner: StartWorker = CleanerProcess,
    ) -> None:
        """Opens and recovers every log. Raises LogDirectoryError with one line that says what to do.

        ``on_moved`` is told the log that was and the one that took its place, ``on_damage`` in which log a cleaning met damage,
        ``on_shortened`` of which log retention took segments.
        """
        self._config = config
        self._configs = LogConfigs(config)
        self._host = host
        self._timers = timers
        self._image = image
        self._on_failed = on_failed
        self._on_shortened = on_shortened
        self._repeated = Repeated(timers)
        self._flush_timer: Timer | None = None
        self._syncing: dict[Log, None] = {}
        self._new_logs = NewLogs(host.disk, timers)
        self.previous_broker_epoch = _previous_epoch(config, host)
        settings = ManagerSettings(
            cluster_id=cluster_id,
            node_id=config.node_id,
            open_files_max=min(OPEN_FILES_MAX, host.descriptors.logs),
            free_bytes_floor=config.integer("ottla.free.bytes.floor"),
        )
        self._checkpoints, self._removals = WorkLater(), WorkLater()
        self._cleaning: Cleaning | None = None
        self.manager = LogManager(
            host.disk,
            config.log_dirs,
            self._configs.of({}),
            settings,
            host.rng,
            write_later=self._checkpoints.do,
            remove_later=self._removals.do,
            on_directory_failed=self._directory_failed,
            before_truncation=self._before_truncation,
        )
        self.manager.open_all(host.clock.wall_ms(), self._config_of)
        self.require_working_directories()
        speed = config.integer("replica.alter.log.dirs.io.max.bytes.per.second")
        self._deletions = Deletions(self.manager, timers, host.clock.wall_ms)
        is_going = self._deletions.__contains__
        self.moves = DirectoryMoves(
            self.manager, is_going, timers, host.clock.wall_ms, self._before_exchange, on_moved, speed
        )
        self._expiring: list[TopicPartition] = []
        self._retaining = 0  # logs that are still to be looked at
        self.cleaner: LogCleaner | None = None
        self._cleaning = self._prepare_cleaning(start_cleaner, on_damage)

    def _prepare_cleaning(self, start_cleaner: StartWorker, on_damage: OnDamage) -> Cleaning | None:
        settings = cleaner_settings(self._config)
        if settings is None:
            return None
        cleaner = self.cleaner = LogCleaner(self._host.disk, settings, self.manager.checkpoints.cleaned)
        return Cleaning(
            cleaner,
            settings,
            self._cleanable,
            self._timers,
            self._host.clock,
            start_cleaner,
            self._cleaning_failed,
            on_damage,
        )

    def _config_of(self, partition: TopicPartition) -> LogConfig:
        return self._configs.of_topic(partition.topic, self._image.configs, self._config.node_id)

    def configure(self, config: ServerConfig) -> None:
        """Settings changed while the node runs."""
        self._config = config
        self.moves.set_speed(config.integer("replica.alter.log.dirs.io.max.bytes.per.second"))
        settings = cleaner_settings(config)
        if self._cleaning is not None and settings is not None:
            self._cleaning.configure(settings)

    def require_working_directories(self) -> None:
        """Raises LogDirectoryError unless a directory works, and the metadata log's, if it is one (Kafka's LogDirFailureHandler)."""
        lost = {root.path: root.failure for root in self.manager.roots if root.failure is not None}
        home = self._config.metadata_log_dir
        if home in lost:
            raise LogDirectoryError(
                f"the directory of the metadata log, {home}, failed: {lost[home]}; mend it, and start again"
            )
        if len(lost) == len(self.manager.roots):
            raise LogDirectoryError(f"no log directory is left: mend one of {', '.join(lost)}, and start again")

    @property
    def working_directories(self) -> list[bytes]:
        """The ids of those that have not failed."""
        return [root.directory_id for root in self.manager.roots if root.failure is None]

    def start(self) -> None:
        """Starts the timers."""
        config, manager = self._config, self.manager
        wall_ms = self._host.clock.wall_ms
        self._repeated.every(SPACE_CHECK_MS, manager.check_space)
        self._repeated.every(PURGE_CHECK_MS, lambda: manager.removals.purge(wall_ms()))
        self._repeated.every(config.integer("log.retention.check.interval.ms"), self._delete_old_segments)
        self._repeated.every(config.integer("log.flush.offset.checkpoint.interval.ms"), manager.checkpoints.save_points)
        self._repeated.every(ROLLED_SYNC_MS, self._sync_rolled)
        self._repeated.every(config.integer("producer.id.expiration.check.interval.ms"), self._expire_producers)
        if self._cleaning is not None:
            self._cleaning.start()
        for root in manager.roots:
            root.on_flush_settings = self._look_for_flushes
        self._look_for_flushes()
        for log in manager.logs.values():
            if log.must_sync:  # after a hard shutdown nobody knows what the last process left to the kernel
                self._new_logs.sync_soon(log)

    def _sync_rolled(self) -> None:
        for log in self.manager.rolled_logs():
            self._sync(log)

    def _look_for_flushes(self) -> None:
        """Every `FLUSH_CHECK_MS` while there are logs that set ``flush.messages`` or ``flush.ms``, and else not at all."""
        if self._flush_timer is None and any(root.flushed for root in self.manager.roots):
            self._flush_timer = self._timers.call_at_beat(FLUSH_CHECK_MS, self._sync_due)

    def _sync_due(self) -> None:
        """By the clock that never jumps: a promise of durability within a time does not wait for the calendar."""
        self._flush_timer = None
        self._look_for_flushes()
        for log in self.manager.due_flushes(self._timers.now_ms()):
            self._sync(log)

    def _sync(self, log: Log) -> None:
        """Syncs a log, once at a time; what was appended meanwhile is the next one's."""
        try:
            ticket = None if log in self._syncing else log.unsynced()
        except StorageError:
            return  # there may be a descriptor the next time
        if ticket is not None:
            self._syncing[log] = None
            self._host.sync_later.sync(ticket.file, partial(self._synced, log, ticket))

    def _synced(self, log: Log, ticket: SyncTicket, error: OSError | None) -> None:
        self._syncing.pop(log, None)
        if log.abandoned:
            return
        if error is not None:
            log.root.failed(error)
            return
        log.mark_synced(ticket)
        if ticket.names_version >= 0:
            self._sync(log)  # those were its names; now its records

    def _expire_producers(self) -> None:
        if not self._expiring:
            self._expiring = list(self.manager.logs)
            self._expire_some()

    def _expire_some(self) -> None:
        """Forgets the idle producers of the next few logs; the rest when others had their turn."""
        wall_ms, idle_ms_max = self._host.clock.wall_ms(), self._config.integer("producer.id.expiration.ms")
        for partition in self._expiring[-EXPIRY_LOGS_MAX:]:
            log = self.manager.logs.get(partition)
            if log is not None:
                log.producers.expire(wall_ms, idle_ms_max)
        del self._expiring[-EXPIRY_LOGS_MAX:]
        if self._expiring:
            self._timers.call_later_ms(EXPIRY_PAUSE_MS, self._expire_some)

    def _delete_old_segments(self) -> None:
        if self._retaining <= 0:
            self._retaining = len(self.manager.logs)
            self._delete_some()

    def _delete_some(self) -> None:
        """Retention for the next few logs; the rest when others had their turn."""
        if self._retaining <= 0:
            return  # closed meanwhile
        self._retaining -= RETENTION_LOGS_MAX
        if self._retaining > 0:  # first, for what is raised below must not be the end of it
            self._timers.call_later_ms(EXPIRY_PAUSE_MS, self._delete_some)
        for log in self.manager.delete_old_segments(self._host.clock.wall_ms(), RETENTION_LOGS_MAX):
            self._on_shortened(log)

    # Cleaning.

    def _cleanable(self) -> Iterator[Log]:
        """Not those that wait to be deleted: before a worker ends, another topic's log may lie where it works. Nor those that move: their
        copies would have values whose tombstones went before they came to them (Kafka's log manager pauses these too)."""
        going, moving = self._deletions, self.moves.under_way
        return (log for name, log in self.manager.logs.items() if name not in going and name not in moving)

    def _cancel_cleaning(self, partition: TopicPartition) -> None:
        if self._cleaning is not None:
            self._cleaning.cancel(partition)

    def _leave(self, partition: TopicPartition) -> None:
        """The partition's log goes: whoever works on it has to end."""
        self._cancel_cleaning(partition)
        self.moves.give_up(partition)

    def _before_exchange(self, partition: TopicPartition) -> None:
        self._cancel_cleaning(partition)
        self._deletions.gather()

    def _before_truncation(self, offsets: Mapping[TopicIdPartition, int]) -> None:
        """The cuts go below the saved recovery points: nothing else can reach what is cleaned."""
        for key in offsets:
            self._cancel_cleaning(key.partition)

    def _cleaning_failed(self, partition: TopicPartition, error: OSError) -> None:
        log = self.manager.logs.get(partition)
        if log is not None:
            log.root.failed(error)

    def _directory_failed(self, root: DirectoryState, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._leave(partition)
        self.moves.directory_failed(root)
        self._on_failed([root.directory_id], partitions)

    # What the replica manager asks.

    def get_or_create(
        self,
        partition: TopicPartition,
        config: LogConfig,
        topic_id: bytes,
        directory_id: bytes | None = None,
        *,
        is_new: bool = True,
    ) -> Log:
        now_ms = self._host.clock.wall_ms()
        self._deletions.finish(partition)  # another replica of the same topic, or another topic of the same name
        known = self.manager.logs.get(partition)
        if known is not None and known.topic_id != topic_id:
            self._leave(partition)  # it is of another topic, and set aside
            self._deletions.gather()
        log = self.manager.get_or_create(partition, config, topic_id, directory_id, now_ms=now_ms, is_new=is_new)
        if log is not known:
            self._new_logs.sync_soon(log)
        return log

    def reads(self, directory_id: bytes) -> bool:
        """Whether that directory is here and has not failed."""
        return any(root.directory_id == directory_id and root.failure is None for root in self.manager.roots)

    def delete(self, partition: TopicPartition, topic_id: bytes) -> None:
        self._leave(partition)
        self._deletions.add(partition, topic_id)

    def checkpoint_high_watermarks(self) -> None:
        self.manager.checkpoints.save_high_watermarks()

    def set_aside_strays(self, image: MetadataImage) -> None:
        """Once, when the metadata was read after the start: logs that nobody assigns to this broker are renamed."""

        def is_ours(name: TopicPartition, topic_id: bytes | None) -> bool:
            view = image.partition(topic_id, name.partition) if topic_id is not None else None
            return view is not None and self._config.node_id in view.replicas

        for log in self.manager.strays(is_ours):
            if log.root.failure is not None:
                continue  # it failed over one of these: its logs are offline, and found again when it is mended
            try:
                self.manager.set_aside(log)
            except StorageError as error:  # who takes the name next sets aside what lies there
                logger.error("%s: stray log left where it is: %s", log.partition, error)

    async def close(self, broker_epoch: int) -> None:
        """Makes every log durable (on a thread) and marks the directories as cleanly shut.

        A broker that never registered (epoch -1) took in no records: the mark is of the one before it again, or the controller
        would take that for one that lost some, and strike it off the eligible leaders. Whatever fails, the directories are let go of:
        without the mark, so that the next start recovers.
        """
        try:
            await self._close(broker_epoch)
        finally:
            self.manager.unlock()

    async def _close(self, broker_epoch: int) -> None:
        self._repeated.cancel()
        for root in self.manager.roots:
            root.on_flush_settings = None
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._expiring.clear()
        self._retaining = 0
        self._new_logs.close()
        self.moves.close()
        self._deletions.close()
        if self._cleaning is not None:
            await self._cleaning.stop()
        await self._removals.close(drop_waiting=True)  # the next start finds what is left
        await self._checkpoints.close()
        for root in self.manager.roots:
            root.on_failure = None  # a thread closes the logs, and who would be told is the loop's
        epoch = broker_epoch if broker_epoch >= 0 else self.previous_broker_epoch
        await asyncio.get_running_loop().run_in_executor(None, self.manager.close, epoch)


def _previous_epoch(config: ServerConfig, host: Host) -> int:
    """The epoch of the last clean shutdown, -1 unless all directories agree on one."""
    try:
        epochs = {CleanShutdown.broker_epoch(host.disk, path): None for path in config.log_dirs}
    except OSError:  # a directory that failed: what was in it is lost
        return -1
    return next(iter(epochs)) if len(epochs) == 1 else -1
