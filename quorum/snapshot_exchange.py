"""Pieces of snapshots given to others and taken from them, and the snapshot that takes the log's place. See raft/snapshots.py."""

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
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import FetchSnapshotResponse
from ottla.quorum.snapshot_files import SnapshotDescription, SnapshotFiles
from ottla.quorum.snapshotting import read_piece
from ottla.runtime.turns import on_thread

_logger = logging.getLogger(__name__)


class SnapshotExchange:
    """Without ``files`` nothing is given, and the core asks for nothing."""

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

    async def begin(self, latest: OffsetAndEpoch | None) -> None:
        """A listener that stands before the log's start is given the latest snapshot. Raises LogStartError when that is damaged."""
        if self._delivery.next_offset >= self._log.log_start_offset:
            return
        assert self._files is not None, "align_log saw to it"
        assert latest is not None, "align_log saw to it"
        if not await on_thread(partial(self._files.is_sound, latest)):
            raise LogStartError(f"{self._files.path(latest)} is damaged, and the log begins after it")
        await self._tell(latest)
        self._delivery.restart_at(latest.offset)

    def give(self, instruction: ReadSnapshotAndRespond, is_over: Callable[[], bool]) -> None:
        """On a thread: nobody may have read the file of late. Once ``is_over``, there is nobody to answer."""

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
        description = SnapshotDescription(instruction.size, instruction.checksum, instruction.voters)
        if not self._files.keep_received(snapshot, description):
            _logger.warning("the snapshot at %d arrived damaged; it is fetched again", snapshot.offset)
            return SnapshotInstalled(None)
        self._log.truncate_fully_and_start_at(snapshot.offset)
        self._files.remove_older(snapshot)
        self._untold = snapshot
        self._delivery.pause()
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell_latest(), name="snapshot")
        return SnapshotInstalled(snapshot, instruction.voters)

    async def _tell_latest(self) -> None:
        """Another may arrive meanwhile, and its predecessor's file goes: then only the later one counts."""
        try:
            while (snapshot := self._untold) is not None:
                try:
                    await self._tell(snapshot)
                except Exception:
                    if self._untold is snapshot:
                        raise
                if self._untold is snapshot:
                    self._untold = None
                    self._delivery.restart_at(snapshot.offset)
                    self._driver.call_soon(self._delivery.deliver)
        except Exception as error:  # noqa: BLE001 - the disk's or the listener's: what is committed cannot be told any more
            self._driver.cannot_go_on(error)
        finally:
            self._telling = None

    async def _tell(self, snapshot: OffsetAndEpoch) -> None:
        assert self._files is not None
        _logger.info("the metadata is taken from the snapshot at %d", snapshot.offset)
        await self._listener.on_snapshot(self._files.path(snapshot), snapshot.offset, snapshot.epoch)

    async def stop(self) -> None:
        """The listener's stores are about to be closed; what it was not given yet the next start gives it."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait([self._telling])
