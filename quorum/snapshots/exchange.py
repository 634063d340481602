"""Pieces of snapshots given to others and taken from them, and the snapshot that takes the place of log and image, or of the image
alone. See raft/snapshots.py and image_fit.py."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from ottla.quorum import messages_proto
from ottla.quorum.core_driver import CoreDriver
from ottla.quorum.delivery import CommitDelivery
from ottla.quorum.listener import QuorumListener
from ottla.quorum.log_port import MetadataLog
from ottla.quorum.log_start import LogStartError
from ottla.quorum.raft.events import SnapshotInstalled
from ottla.quorum.raft.instructions import InstallSnapshot, ReadSnapshotAndRespond, StoreSnapshotChunk
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.messages import FetchSnapshotResponse
from ottla.quorum.snapshots.files import SnapshotDescription, SnapshotFiles
from ottla.quorum.snapshots.image_fit import BEGINNING, Fit, fit
from ottla.quorum.snapshots.taking import read_piece
from ottla.runtime.turns import on_thread

_logger = logging.getLogger(__name__)


class SnapshotExchange:
    """Gives pieces of snapshots, and takes in those that are fetched. Without ``files`` nothing is given, and the core asks
    for nothing."""

    def __init__(
        self,
        files: SnapshotFiles | None,
        log: MetadataLog,
        listener: QuorumListener,
        delivery: CommitDelivery,
        driver: CoreDriver,
    ) -> None:
        self._files = files
        self._log = log
        self._listener = listener
        self._delivery = delivery
        self._driver = driver
        self._untold: OffsetAndEpoch | None = None  # the latest that the listener is to be given
        self._telling: asyncio.Task[None] | None = None

    async def begin(self, log: LogSummary) -> None:
        """A listener that stands before the log's start, or has what the log does not say, begins anew with a snapshot that is sound:
        after an older one the log just has more to tell. Raises LogStartError when it cannot."""
        applied = self._delivery.applied
        if self._keeps(applied, log):
            return
        if applied.offset > log.start:
            _tell_of_rebuild(applied, log)
        base = await on_thread(partial(self._latest_sound, log))
        await self._tell(base)
        self._delivery.restart_at(base)

    def _keeps(self, applied: OffsetAndEpoch, log: LogSummary) -> bool:
        """Whether the image goes on with this log. Raises LogStartError."""
        decided = fit(applied, log)
        if decided is Fit.REFUSE:
            raise LogStartError(f"the metadata log begins at {log.start} and no snapshot has what lies before")
        return decided is Fit.GO_ON

    def before_cut(self, offset: int) -> None:
        """The log is about to be cut at ``offset``."""
        if self._files is not None:
            self._files.discard_beyond(offset)

    def after_cut(self, log: LogSummary) -> None:
        """The log was cut, and is ``log`` now. Whoever has what is gone begins anew, over turns of the loop as with a
        received snapshot. A crash until then is nothing: the next start finds what the image is. Raises LogStartError."""
        stands = self._delivery.applied if self._untold is None else self._untold
        if not self._keeps(stands, log):
            _tell_of_rebuild(stands, log)
            self._give_listener(log.snapshot or BEGINNING)

    def give(self, instruction: ReadSnapshotAndRespond, is_over: Callable[[], bool]) -> None:
        """Answers with a piece, read on a thread: nobody may have read the file of late. Once ``is_over``, there is nobody
        to answer."""

        def done(reading: "asyncio.Future[FetchSnapshotResponse]") -> None:
            if not is_over() and not reading.cancelled():
                instruction.token(messages_proto.response_to_proto(reading.result()))

        read = partial(read_piece, self._files, instruction.response, instruction.max_bytes)
        asyncio.get_running_loop().run_in_executor(None, read).add_done_callback(done)

    def take(self, instruction: StoreSnapshotChunk) -> None:
        assert self._files is not None, "who keeps no snapshots asks for none"
        self._files.receive(instruction.position, instruction.data)

    def install(self, instruction: InstallSnapshot) -> SnapshotInstalled:
        """Durable first, then the log gives way. A crash in between is mended by `align_log`. The listener is given it over turns
        of the loop; until it has it, the node takes part in the quorum and commits wait."""
        assert self._files is not None, "who keeps no snapshots asks for none"
        snapshot = instruction.snapshot
        description = SnapshotDescription(instruction.size, instruction.checksum, instruction.voters, instruction.mark)
        if not self._files.keep_received(snapshot, description):
            _logger.warning("the snapshot at %d arrived damaged; it is fetched again", snapshot.offset)
            return SnapshotInstalled(None)
        self._log.truncate_fully_and_start_at(snapshot.offset)
        self._files.remove_older(snapshot)
        self._give_listener(snapshot)
        return SnapshotInstalled(snapshot, instruction.voters, instruction.mark)

    def _give_listener(self, snapshot: OffsetAndEpoch) -> None:
        self._untold = snapshot
        self._delivery.pause()
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell_latest(), name="snapshot")

    async def _tell_latest(self) -> None:
        """Tells of the latest that was received. Another may arrive meanwhile, and its predecessor's file goes: then only
        the later one counts."""
        try:
            while (snapshot := self._untold) is not None:
                try:
                    await self._tell(snapshot)
                except Exception:
                    if self._untold is snapshot:
                        raise
                if self._untold is snapshot:
                    self._untold = None
                    self._delivery.restart_at(snapshot)
                    self._driver.call_soon(self._delivery.deliver)
        except Exception as error:  # noqa: BLE001 - the disk's or the listener's: what is committed cannot be told any more
            self._driver.cannot_go_on(error)
        finally:
            self._telling = None

    async def _tell(self, snapshot: OffsetAndEpoch) -> None:
        if snapshot is BEGINNING:
            await self._listener.on_snapshot(None, 0, -1)
            return
        _logger.info("the metadata is taken from the snapshot at %d", snapshot.offset)
        await self._listener.on_snapshot(self._path(snapshot), snapshot.offset, snapshot.epoch)

    def _path(self, snapshot: OffsetAndEpoch) -> str:
        assert self._files is not None, "who keeps no snapshots has none"
        return self._files.path(snapshot)

    def _latest_sound(self, log: LogSummary) -> OffsetAndEpoch:
        """Reads all of it: on a thread. Raises LogStartError."""
        snapshots = self._files.all() if self._files is not None else []
        usable = [each for each in snapshots if log.holds(each)]
        for snapshot in reversed(usable):
            if self._sound(snapshot):
                return snapshot
            _logger.warning("%s is damaged", self._path(snapshot))
        if log.start == 0:
            return BEGINNING
        raise LogStartError(f"{self._path(usable[-1])} is damaged, and the metadata image cannot be made without it")

    def _sound(self, snapshot: OffsetAndEpoch) -> bool:
        assert self._files is not None, "who keeps no snapshots has none"
        try:
            return self._files.is_sound(snapshot)
        except OSError as error:
            _logger.warning("%s cannot be read: %s", self._path(snapshot), error)
            return False

    async def stop(self) -> None:
        """The listener's stores are about to be closed; what it was not given yet the next start gives it."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait([self._telling])


def _tell_of_rebuild(applied: OffsetAndEpoch, log: LogSummary) -> None:
    _logger.warning(
        "the metadata image ends at %d in epoch %d, and the log, which goes from %d to %d, does not say so: the image is made anew. "
        "If no power was cut, the disk of a controller went back in time or was replaced, and metadata that was acknowledged is lost: "
        "see docs/quorum.md, Lost disks",
        *applied,
        log.start,
        log.end,
    )
