"""Group commit: what this leader appends while the log is synced is gathered, and shares the next sync."""

import asyncio
import errno
from collections.abc import Sequence

from ottla.quorum.accumulator import BatchAccumulator
from ottla.quorum.complaints import with_advice
from ottla.quorum.core_driver import CoreDriver
from ottla.quorum.delivery import CommitDelivery
from ottla.quorum.listener import NotLeaderError
from ottla.quorum.log_port import MetadataLog
from ottla.quorum.raft.events import Event, LogSynced
from ottla.quorum.raft.instructions import Sync
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.state import RaftState
from ottla.quorum.settings import QuorumSettings
from ottla.quorum.synced_mark import SyncedMark
from ottla.runtime.clock import Clock
from ottla.runtime.sync_later import SyncLater


class GroupCommit:
    """Takes appends exactly while the core leads, and syncs the log for whatever role."""

    def __init__(
        self,
        settings: QuorumSettings,
        state: RaftState,
        clock: Clock,
        log: MetadataLog,
        sync_later: SyncLater,
        delivery: CommitDelivery,
        driver: CoreDriver,
        mark: SyncedMark,
    ) -> None:
        self._settings = settings
        self._state = state
        self._clock = clock
        self._log = log
        self._sync_later = sync_later
        self._delivery = delivery
        self._driver = driver
        self._mark = mark
        self._accumulator: BatchAccumulator | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._syncs = 0

    def close(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self._sync_later.close()

    # --- appends ------------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether anything is gathered."""
        return bool(self._accumulator)

    @property
    def next_offset(self) -> int:
        accumulator = self._accumulator
        return self._state.log.end if accumulator is None else accumulator.next_offset

    def append(self, records: Sequence[bytes], epoch: int, cause: str) -> int:
        """See `QuorumNode.append`."""
        accumulator = self._accumulator
        if accumulator is None or accumulator.epoch != epoch or self._driver.stopped:
            raise NotLeaderError(self._driver.leader)
        last = accumulator.append(records, self._clock.wall_ms(), cause)
        self._plan_flush()
        return last

    def follow_leadership(self) -> None:
        """What waited for an epoch that is over is dropped."""
        role, accumulator = self._state.role, self._accumulator
        if isinstance(role, Leader):
            if self._state.shutting_down:
                self._accumulator = None
            elif accumulator is None or accumulator.epoch != role.epoch:
                self._accumulator = BatchAccumulator(role.epoch, self._state.log.end, self._settings.batch_bytes_max)
                self._delivery.forget_kept()
            elif not accumulator:
                accumulator.next_offset = self._state.log.end  # past what the core itself appended
        else:
            self._accumulator = None
            self._delivery.forget_kept()

    def _plan_flush(self) -> None:
        """An idle leader appends in this very turn of the loop; while a sync runs, appends gather until it ends (or for
        the linger): they can share the next one."""
        if self._flush_planned:
            return
        self._flush_planned = True
        loop = asyncio.get_running_loop()
        if self._syncs == 0:
            loop.call_soon(self.flush)
        else:
            self._linger = loop.call_later(self._settings.append_linger_ms / 1000, self.flush)

    def flush(self) -> None:
        """Tells the core what is gathered."""
        self._flush_planned = False
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if not self or self._driver.stopped:
            return
        self._driver.handle(self.drain())

    def drain(self) -> Event:
        """Gives what is gathered. Only when something is."""
        assert self._accumulator is not None
        event, committable = self._accumulator.drain()
        self._delivery.keep(committable)
        return event

    # --- syncs --------------------------------------------------------------------------------------------------------

    def sync(self, instruction: Sync) -> None:
        self._sync(instruction.end_offset)

    def _sync(self, end_offset: int) -> None:
        self._syncs += 1
        self._sync_later.sync(self._log.active_file, lambda error: self._synced(end_offset, error))

    def _marked(self, end_offset: int) -> OSError | None:
        """Why it cannot be written down how far the log is synced: nobody may hear that it is."""
        self._log.mark_synced(end_offset)
        try:
            self._mark.raise_to(end_offset)
        except OSError as error:
            return error
        return None

    def _synced(self, end_offset: int, error: OSError | None) -> None:
        self._syncs -= 1
        if not self._driver.goes_on:
            return  # whoever owns the log may have closed it
        if error is not None and error.errno == errno.EBADF:
            # Its segment went while it waited its turn, with a snapshot or a cut. What the log is made of now has to be synced.
            self._sync(end_offset)
            return
        if error is None:
            error = self._marked(end_offset)
        if error is not None:
            self._driver.fail(f"the metadata log cannot be synced: {with_advice(error)}", error)
            return
        self._driver.handle(LogSynced(end_offset))
        if self:
            self.flush()
