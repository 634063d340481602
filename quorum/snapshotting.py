"""When a snapshot is taken, and what the log may forget then. The shell's half of KIP-630; the core's is raft/snapshots.py."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from ottla.quorum.log_port import MetadataLog
from ottla.quorum.raft.events import SnapshotTaken
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import FetchSnapshotResponse
from ottla.quorum.raft.state import RaftState
from ottla.quorum.snapshot_files import SnapshotDescription, SnapshotFiles
from ottla.runtime.errors import ErrorCode

_logger = logging.getLogger(__name__)


class SnapshotSource(Protocol):
    """The state machine's side."""

    def copy_to(self, path: str) -> OffsetAndEpoch | None:
        """Writes what it stands for to a new file and says where in the log that is (None: nowhere yet; nothing is kept).
        Called on a thread, while commits go on."""
        ...


class SnapshotTaker:
    """Takes a snapshot when enough was committed since the last, by size or by time; one at a time."""

    def __init__(
        self,
        files: SnapshotFiles,
        log: MetadataLog,
        state: RaftState,
        after_bytes: int,
        after_ms: int,
        on_taken: Callable[[SnapshotTaken], None],
        wall_ms: Callable[[], int],
    ) -> None:
        """``after_ms`` 0: time alone makes no snapshot."""
        self._files = files
        self._log = log
        self._state = state
        self._after_bytes = after_bytes
        self._after_ms = after_ms
        self._on_taken = on_taken
        self._wall_ms = wall_ms
        self._bytes = 0
        self._last_ms: int | None = None
        self._running: asyncio.Future[tuple[OffsetAndEpoch, SnapshotDescription] | None] | None = None
        self.source: SnapshotSource | None = None

    def note_appended(self, size_bytes: int) -> None:
        self._bytes += size_bytes

    def committed(self, now_ms: int) -> None:
        """Called after commits were delivered."""
        if self.source is None or self._running is not None or self._bytes == 0:
            return
        if self._last_ms is None:
            self._last_ms = now_ms
        due = self._after_ms > 0 and now_ms - self._last_ms >= self._after_ms
        if due or self._bytes >= self._after_bytes:
            self._last_ms = now_ms
            self._begin(self.source)

    def _begin(self, source: SnapshotSource) -> None:
        self._bytes = 0
        self._running = asyncio.get_running_loop().run_in_executor(None, _copy, self._files, source)
        self._running.add_done_callback(self._copied)

    def _copied(self, copied: "asyncio.Future[tuple[OffsetAndEpoch, SnapshotDescription] | None]") -> None:
        self._running = None
        if copied.cancelled():
            return
        try:
            taken = copied.result()
            if taken is not None:
                self._keep(*taken)
        except OSError as error:
            _logger.error("no snapshot was taken: %s", error)  # the log still has everything; the next one may work

    def _keep(self, snapshot: OffsetAndEpoch, description: SnapshotDescription) -> None:
        """The log keeps what lies behind the snapshot before this one, so that who lags a little need not fetch a file."""
        state, latest = self._state, self._files.latest
        behind = latest is not None and snapshot <= latest
        if behind or not state.log.start <= snapshot.offset <= state.high_watermark:
            self._files.discard_taken()
            return
        voters = state.voters.at(snapshot.offset) if state.voters.latest_offset >= 0 else None
        self._files.keep_taken(snapshot, msgspec.structs.replace(description, voters=voters))
        log_start = max(state.log.start, latest.offset if latest is not None else 0)
        self._on_taken(SnapshotTaken(snapshot, log_start))
        now_ms = self._wall_ms()
        self._log.roll()
        self._log.advance_log_start(log_start)
        self._log.delete_old_segments(now_ms)
        self._log.purge(now_ms)
        if latest is not None:
            self._files.remove_older(latest)
        _logger.info("snapshot at %d, %d bytes; the log begins at %d", snapshot.offset, description.size, log_start)

    async def stop(self) -> None:
        """Waits for a copy that is being made: its store is about to be closed."""
        if self._running is not None:
            await asyncio.wait([self._running])


def _copy(files: SnapshotFiles, source: SnapshotSource) -> tuple[OffsetAndEpoch, SnapshotDescription] | None:
    files.discard_taken()
    snapshot = source.copy_to(files.taking_path)
    return None if snapshot is None else (snapshot, files.measure())


def read_piece(files: SnapshotFiles | None, response: FetchSnapshotResponse, max_bytes: int) -> FetchSnapshotResponse:
    """``response`` with the piece of its snapshot that begins at its position, or with the reason why not."""
    description = None
    if files is not None and response.snapshot is not None:
        description = files.describe(response.snapshot)
    if files is None or response.snapshot is None or description is None:
        return msgspec.structs.replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
    if not 0 <= response.position < max(1, description.size):
        return msgspec.structs.replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
    return msgspec.structs.replace(
        response,
        size=description.size,
        checksum=description.checksum,
        voters=description.voters,
        data=files.read(response.snapshot, response.position, max_bytes),
    )
