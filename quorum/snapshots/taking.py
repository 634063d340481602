"""When a snapshot is taken, and what the log may forget then. The shell's half of KIP-630; the core's is raft/snapshots.py."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import msgspec

from ottla.quorum.log_port import MetadataLog
from ottla.quorum.raft.events import SnapshotTaken
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import FetchSnapshotResponse
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.voters import VoterSet
from ottla.quorum.snapshots.files import SnapshotDescription, SnapshotFiles
from ottla.quorum.snapshots.limits import HeldSnapshot, SnapshotLimits, expendable
from ottla.runtime.clock import Clock
from ottla.runtime.clock_loop import loop_ms
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.turns import on_thread

CLEAN_INTERVAL_S = 60.0
"""How often what has become too old is looked for."""

_Taken = tuple[OffsetAndEpoch, SnapshotDescription]

_logger = logging.getLogger(__name__)


class SnapshotSource(Protocol):
    """What snapshots are taken of: the application's side."""

    def copy_to(self, path: str) -> OffsetAndEpoch | None:
        """Writes what it stands for to a new file and says where in the log that is (None: nowhere yet; nothing is kept).
        Called on a thread, while commits go on. OSError: no copy could be made."""
        ...


class SnapshotTaker:
    """Takes a snapshot when enough was committed since the last, by size or by time; one at a time. Removes old ones, and
    what the log holds before them."""

    def __init__(
        self,
        files: SnapshotFiles,
        log: MetadataLog,
        state: RaftState,
        limits: SnapshotLimits,
        clock: Clock,
        on_taken: Callable[[SnapshotTaken], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """``on_taken`` is told when the latest snapshot or the log's start has changed; ``on_failure`` when the log fails."""
        self._files = files
        self._log = log
        self._state = state
        self._limits = limits
        self._clock = clock
        self._on_taken = on_taken
        self._on_failure = on_failure
        since = files.latest.offset if files.latest is not None else 0
        self._bytes = log.bytes_between(max(since, log.log_start_offset), log.log_end_offset)
        self._last_ms: int | None = None
        self._running: asyncio.Task[None] | None = None
        self._cleaning: asyncio.TimerHandle | None = None
        self._stopped = False
        self.source: SnapshotSource | None = None

    def start(self) -> None:
        """Looks for what may go, now and then, until `halt`."""
        self._plan_cleaning()

    def note_appended(self, size_bytes: int) -> None:
        self._bytes += size_bytes

    def committed(self, now_ms: int) -> None:
        """Called after commits were delivered."""
        if self.source is None or self._running is not None or self._stopped or self._bytes == 0:
            return
        if self._last_ms is None:
            self._last_ms = now_ms
        due = self._limits.after_ms > 0 and now_ms - self._last_ms >= self._limits.after_ms
        if due or self._bytes >= self._limits.after_bytes:
            self._last_ms, self._bytes = now_ms, 0
            self._running = asyncio.get_running_loop().create_task(self._run(self.source))

    # --- taking one ---------------------------------------------------------------------------------------------------

    async def _run(self, source: SnapshotSource) -> None:
        """The log still has everything when this fails; the next one may work. What was copied so far goes: on a full disk it would
        stand in the way of what matters more."""
        try:
            await self._take(source)
        except OSError as error:
            _logger.error("no snapshot was taken; the log has everything, and the next one may work: %s", error)
            with suppress(OSError):
                await on_thread(self._files.discard_taken)
        except Exception:
            _logger.exception("no snapshot was taken")
        finally:
            self._running = None

    async def _take(self, source: SnapshotSource) -> None:
        """Disk work goes to threads; meanwhile a newer snapshot may arrive from the leader."""
        taken = await on_thread(partial(_copy, self._files, source))
        if taken is None or not self._is_news(taken[0]):
            await on_thread(self._files.discard_taken)
            return
        snapshot = taken[0]
        mark = self._state.log.marks.get(snapshot.epoch, 0)
        description = msgspec.structs.replace(taken[1], voters=self._voters_at(snapshot.offset), mark=mark)
        await on_thread(partial(self._files.freeze_taken, snapshot, description))
        if self._stopped:
            return  # the next start finds it
        if not self._is_news(snapshot):
            self._files.remove_files(snapshot)
            return
        self._files.add(snapshot, description)
        self._keep(snapshot)
        _logger.info(
            "snapshot at %d, %d bytes; the log begins at %d", snapshot.offset, description.size, self._state.log.start
        )

    def _is_news(self, snapshot: OffsetAndEpoch) -> bool:
        """Whether it is newer than what there is, and of this log. The log may have been cut, and written anew, while the
        copy was made."""
        latest, state = self._files.latest, self._state
        behind = latest is not None and snapshot <= latest
        committed = state.log.start <= snapshot.offset <= state.high_watermark
        return not behind and committed and state.log.epoch_below(snapshot.offset) == snapshot.epoch

    def _voters_at(self, offset: int) -> VoterSet | None:
        """The voters in force there; None while only the configuration names them."""
        voters = self._state.voters
        return voters.at(offset) if any(start < offset for start, _ in voters.entries) else None

    def _keep(self, snapshot: OffsetAndEpoch) -> None:
        """The log's segments end where snapshots are taken, so that they can go with them."""
        try:
            self._log.roll()
            self._clean(snapshot)
        except (OSError, KafkaError) as error:
            self._on_failure(error)

    # --- removing old ones --------------------------------------------------------------------------------------------

    def _plan_cleaning(self) -> None:
        self._cleaning = asyncio.get_running_loop().call_later(CLEAN_INTERVAL_S, self._clean_now_and_then)

    def _clean_now_and_then(self) -> None:
        self._plan_cleaning()
        latest = self._files.latest
        try:
            if latest is not None and self._state.log.start <= latest.offset <= self._state.high_watermark:
                self._clean(latest)
            self._log.purge(loop_ms(asyncio.get_running_loop()))
        except (OSError, KafkaError) as error:
            self._on_failure(error)

    def _clean(self, latest: OffsetAndEpoch) -> None:
        """The core is told before anything goes; what goes first is the log, since it cannot begin where no snapshot ends."""
        log, snapshots = self._log, self._files.all()
        count = self._expendable(snapshots)
        log_start = max(self._state.log.start, snapshots[count].offset if count else 0)
        self._on_taken(SnapshotTaken(latest, log_start))
        if count:
            log.advance_log_start(log_start)
            log.delete_old_segments(self._clock.wall_ms())
            log.purge(loop_ms(asyncio.get_running_loop()))  # only dates what was condemned just now
            self._files.remove_older(snapshots[count])

    def _expendable(self, snapshots: Sequence[OffsetAndEpoch]) -> int:
        """How many of the oldest may go. Where the oldest may stay, nothing is asked of the others: there may be many."""
        sizes = [description.size for each in snapshots if (description := self._files.describe(each)) is not None]
        total, now_ms, retention = self._log.size_bytes + sum(sizes), self._clock.wall_ms(), self._limits.retention
        if len(snapshots) < 2 or not retention.reached(total, now_ms - self._files.made_ms(snapshots[0])):
            return 0
        return expendable([self._held(each) for each in snapshots], self._log.size_bytes, retention, now_ms)

    def _held(self, snapshot: OffsetAndEpoch) -> HeldSnapshot:
        description = self._files.describe(snapshot)
        assert description is not None
        log = self._log
        below = log.bytes_between(log.log_start_offset, snapshot.offset)
        return HeldSnapshot(description.size, below, self._files.made_ms(snapshot))

    def halt(self) -> None:
        """Touches the log no more."""
        self._stopped = True
        if self._cleaning is not None:
            self._cleaning.cancel()

    async def stop(self) -> None:
        """Halts, and waits for a copy that is being made: its store is about to be closed."""
        self.halt()
        if self._running is not None:
            await asyncio.wait([self._running])


def _copy(files: SnapshotFiles, source: SnapshotSource) -> _Taken | None:
    files.discard_taken()
    snapshot = source.copy_to(files.taking_path)
    return None if snapshot is None else (snapshot, files.measure())


def read_piece(files: SnapshotFiles | None, response: FetchSnapshotResponse, max_bytes: int) -> FetchSnapshotResponse:
    """``response`` with the piece of its snapshot that begins at its position, or with the reason why not. On any thread."""
    description = None
    if files is not None and response.snapshot is not None:
        description = files.describe(response.snapshot)
    if files is None or response.snapshot is None or description is None:
        return msgspec.structs.replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
    if not 0 <= response.position < max(1, description.size):
        return msgspec.structs.replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
    try:
        data = files.read(response.snapshot, response.position, max(1, max_bytes))
    except FileNotFoundError:  # a newer one took its place this moment
        return msgspec.structs.replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
    except OSError as error:
        _logger.error("the snapshot at %d cannot be read: %s", response.snapshot.offset, error)
        return msgspec.structs.replace(response, error=ErrorCode.KAFKA_STORAGE_ERROR)
    return msgspec.structs.replace(
        response,
        size=description.size,
        checksum=description.checksum,
        voters=description.voters,
        data=data,
        mark=description.mark,
    )
