"""What a log is, in memory: its segments, where it begins and ends, its leader epochs and its producers.

Everything else of a log is made of this: `ottla.log.log` says which file holds what.
"""

from collections.abc import Sequence
from zlib import crc32

from ottla.log.config import FOREVER, LogConfig
from ottla.log.directories.directory import DirectoryState
from ottla.log.epochs import EpochEntries, LeaderEpochCache
from ottla.log.errors import DamagedLogError
from ottla.log.names import NO_TOPIC_ID, TopicIdPartition, TopicPartition
from ottla.log.producers.state import ProducerStateManager
from ottla.log.segments.open_files import OpenFiles
from ottla.log.segments.segment import Segment, number_before
from ottla.runtime.errors import ErrorCode, KafkaError

NO_PLACES: dict[int, int] = {}
"""Stays empty: of all logs that nobody reads."""


class LogState:
    """A log's state. Offsets are absolute; ``log_end_offset`` is what the next record will get."""

    __slots__ = (
        "_generation",
        "_old_bytes",
        "active",
        "condemned",
        "config",
        "directory",
        "disk",
        "epochs",
        "files",
        "gaps_allowed",
        "gaps_marked",
        "half_done",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "places",
        "producers",
        "recovery_point",
        "root",
        "segments",
        "silent_ms",
        "topic_id",
    )

    def __init__(
        self, files: OpenFiles, root: DirectoryState, directory: str, partition: TopicPartition, config: LogConfig
    ) -> None:
        """An empty shell: `recovery.recover` fills it."""
        self.files = files
        self.disk = files.disk
        self.root = root
        self.directory = directory
        self.partition = partition
        self.config = config
        self.topic_id: bytes | None = None
        self.segments: list[Segment] = []
        self.active: Segment
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.recovery_point = 0  # below it everything is on stable storage
        self.silent_ms = 0  # of a log that may have gaps: for how long nothing was written to it when it was opened
        self.epochs = LeaderEpochCache()
        self.producers = ProducerStateManager()
        self.gaps_allowed = config.compacted
        self.gaps_marked = False  # on disk
        self.half_done = False  # something failed half-way: the files may hold something else than is known here
        self.places = NO_PLACES  # offset -> position in its segment, where recent reads ended
        self.condemned: Sequence[tuple[int, str]] = ()  # (when to unlink, path)
        self._old_bytes = 0  # of all segments but the active one
        self._generation = 0

    @property
    def key(self) -> TopicIdPartition:
        """What is written about this log elsewhere stands for no other log of its name."""
        return TopicIdPartition(self.partition, self.topic_id or NO_TOPIC_ID)

    # Segments

    def segment_of(self, offset: int) -> Segment:
        """The segment that holds ``offset``, or would."""
        active = self.active
        return active if offset >= active.base_offset else self.segments[number_before(self.segments, offset)]

    def _following(self, segment: Segment) -> Segment:
        return self.segments[self.segments.index(segment) + 1]

    def next_base_offset(self, segment: Segment) -> int:
        """Where the next segment begins, or the log end."""
        return self.log_end_offset if segment is self.active else self._following(segment).base_offset

    def set_segments(self, segments: list[Segment]) -> None:
        """The log's segments, rising; the last one is active."""
        self.segments = segments
        self.active = segments[-1]
        self._old_bytes = sum(segment.size for segment in segments[:-1])
        self.places.clear()

    @property
    def generation(self) -> int:
        """Another one after every truncation."""
        return self._generation

    def truncated(self) -> None:
        """Something below the log end went: what others remember of it is void."""
        self._generation += 1
        self.places.clear()

    def jitter_ms(self, base_offset: int) -> int:
        """How much earlier a segment rolls, so that partitions do not all roll at once. Always the same for the same segment."""
        jitter = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return crc32(f"{self.partition}@{base_offset}".encode()) % jitter if jitter > 0 else 0

    def set_roll_time(self, first_ms: int | None = None) -> None:
        """Says from when on the active segment is too old to take more: ``segment.ms`` after its first batch, less the jitter."""
        segment = self.active
        if not segment.size:
            segment.roll_after_ms = FOREVER
            return
        if first_ms is None:
            first_ms = _first_timestamp(segment)
        if first_ms < 0:
            first_ms = self.disk.modified_ms(segment.path)
        segment.roll_after_ms = first_ms + self.config.segment_ms - self.jitter_ms(segment.base_offset)

    # Epochs

    @property
    def last_epoch(self) -> int:
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers it; (-1, -1) when the epoch is unknown (kraft.md 4.9)."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def set_epochs(self, entries: EpochEntries) -> None:
        changed = self.epochs.changed
        self.epochs = LeaderEpochCache(entries)
        self.epochs.changed = changed

    def adopt_epochs(self, entries: EpochEntries) -> None:
        """Takes another log's epochs over."""
        self.set_epochs(entries)
        self.epochs.changed = True

    def note_epoch(self, epoch: int, start_offset: int) -> None:
        """What was written before a batch of this epoch ends at this offset. Where compaction left a gap before the batch, the epoch is held to
        have begun in it: a follower that has something else there has to cut it, as it had when the leader of that epoch came."""
        if epoch > self.epochs.latest_epoch:
            self.epochs.assign(epoch, start_offset)

    # Ends

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open: how far read_committed consumers see. The records with which one began may be deleted."""
        first_unstable = self.producers.first_unstable_offset
        high_watermark = self.high_watermark
        if first_unstable is None or first_unstable > high_watermark:
            return high_watermark
        return first_unstable if first_unstable > self.log_start_offset else self.log_start_offset

    @property
    def size_bytes(self) -> int:
        return self._old_bytes + self.active.size

    def set_high_watermark(self, offset: int) -> None:
        """Moves the high watermark, clamped to the log. Whether it may go back is the caller's rule."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset < self.log_start_offset:
            offset = self.log_start_offset
        if offset != self.high_watermark:
            self.high_watermark = offset
            self.root.watermarks_moved = True
            if self.producers.first_unstable_offset is not None:
                self.producers.on_high_watermark(offset)

    def advance_log_start(self, offset: int) -> None:
        """DeleteRecords: what lies below ``offset`` is gone for readers; segments go with the next deletion.

        Raises KafkaError (OFFSET_OUT_OF_RANGE) beyond the high watermark. An offset below the log start changes nothing.
        """
        if offset > self.high_watermark:
            message = f"{self.partition}: log start {offset} would pass the high watermark {self.high_watermark}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)


def _first_timestamp(segment: Segment) -> int:
    try:
        return next(segment.walk_from(0))[1].max_timestamp
    except DamagedLogError:
        return -1
