"""A partition's log: what is appended, read, cut and kept. Each file holds what one user needs of it, upon what the others have:

    state        segments, offsets, epochs, producers, in memory
    named_log    the names of its files, and its topic's id, on the disk
    durable_log  what of all that would survive the machine
    append       a leader's appends, the hot path; `follow`: a follower's, and the broker's own
    read         by offset; `times`: by time
    truncation   cutting its end; `retention`: forgetting its beginning; `compaction.cleaned`: what is cleaned comes in

No clock and no event loop: times are given, I/O goes through the disk that is given, and one thread uses a log at a time.
Appending writes synchronously; what is on stable storage is another question (`ottla.log.durable_log`).
"""

from ottla.log import recovery, reopening
from ottla.log.compaction.cleaned import CompactedLog
from ottla.log.config import LogConfig
from ottla.log.directories.directory import DirectoryState
from ottla.log.errors import StorageError
from ottla.log.follow import FollowerLog
from ottla.log.names import TopicPartition
from ottla.log.retention import RetainedLog
from ottla.log.segments.open_files import OpenFiles
from ottla.log.times import SearchableLog
from ottla.log.truncation import CuttableLog
from ottla.runtime.disk import Disk
from ottla.runtime.errors import KafkaError


class Log(FollowerLog, SearchableLog, CuttableLog, RetainedLog, CompactedLog):
    """One partition's log, whole."""

    __slots__ = ()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        clean_shutdown: bool = False,
        topic_id: bytes | None = None,
        files: OpenFiles | None = None,
        root: DirectoryState | None = None,
        stable_offset: int = 0,
    ) -> "Log":
        """Opens the log in ``directory``, or creates it, and recovers it: what may be torn is read and cut at the first bad byte.

        Everything below ``recovery_point`` is taken as sound, everything at all after a clean shutdown. What was only
        read and not synced stays above ``log.recovery_point``: `flush` makes it durable. ``stable_offset``: below it nothing
        can be torn, so nothing is cut. ``topic_id``: as the directory's own file has it, for want of which that is read. Raises
        StorageError, DamagedLogError (the log ends below ``stable_offset``).
        """
        log = cls(files or OpenFiles(disk), root or DirectoryState(directory), directory, partition, config)
        log.half_done = True
        try:
            recovery.recover(
                log,
                recovery_point,
                log_start_offset,
                now_ms,
                clean=clean_shutdown,
                topic_id=topic_id,
                stable_offset=stable_offset,
                high_watermark=high_watermark,
            )
        except OSError as error:
            log.abandon()
            raise log.root.failed(error) from error
        except KafkaError:
            log.abandon()
            raise
        log.half_done = False
        log.note_flush_settings()
        return log

    def make_whole(self) -> None:
        """Reads the log anew if an operation ended half-way, for whoever takes a role with it and must know where it ends.

        Raises StorageError when that does not work yet.
        """
        if self.half_done and not reopening.reopen(self):
            raise StorageError(f"{self.partition}: an operation ended half-way, and the log cannot be read anew yet")

    def configure(self, config: LogConfig) -> None:
        """Changed topic settings: they hold from the next append on. Raises StorageError where the active segment cannot be read."""
        before, self.config = self.config, config
        self.gaps_allowed = self.gaps_allowed or config.compacted
        self.active.configure(config)
        self.note_flush_settings()
        self.note_must_sync()
        if (config.segment_ms, config.segment_jitter_ms) == (before.segment_ms, before.segment_jitter_ms):
            return
        try:
            self.set_roll_time()
        except OSError as error:
            raise self.root.failed(error) from error
