"""Telling the application what is committed and who leads, in order."""

from collections import deque
from collections.abc import Callable

from ottla.quorum.batches import committed_batches
from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch, QuorumListener
from ottla.quorum.log_port import MetadataLog
from ottla.quorum.raft.instructions import LeaderChanged
from ottla.quorum.raft.log_summary import OffsetAndEpoch

READ_BYTES = 128 << 10  # of the log, in one go before the loop gets its turn
TURN_RECORDS = 500  # told in a turn, and what is left of their batch: they may be ten thousand partitions of one topic
KEPT_RECORDS_MAX = 100_000  # a leader keeps what it appended until it commits, to tell it without reading it back


class CommitDelivery:
    """Feeds a listener from the log, or from memory what this leader itself appended."""

    def __init__(
        self,
        log: MetadataLog,
        listener: QuorumListener,
        applied: OffsetAndEpoch,
        call_soon: Callable[[Callable[[], None]], None],
        on_delivered: Callable[[], None],
    ) -> None:
        """``applied``: what the listener has. ``call_soon`` calls what it is given later, from the loop; ``on_delivered`` is told when all there is was told."""
        self._on_delivered = on_delivered
        self._log = log
        self._listener = listener
        self._call_soon = call_soon
        self._kept: deque[CommittedBatch] = deque()
        self._kept_records = 0
        self._pending_leader: LeaderChanged | None = None
        self._paused = self._confirmed = False
        self._goes_on = False  # in another turn, which is planned
        self.applied = applied
        self.high_watermark = 0

    @property
    def next_offset(self) -> int:
        return self.applied.offset

    def keep(self, batches: list[CommittedBatch]) -> None:
        """What was just appended here as leader, in order."""
        for batch in batches:
            if self._kept_records < KEPT_RECORDS_MAX:
                self._kept.append(batch)
                self._kept_records += len(batch.records)

    def forget_kept(self) -> None:
        """The leadership is over: what was appended may be replaced."""
        self._kept.clear()
        self._kept_records = 0

    def leader_changed(self, change: LeaderChanged) -> None:
        """The newest replaces one that was not told yet."""
        self._pending_leader = change
        self._announce()

    def commit(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.deliver()

    def pause(self) -> None:
        """A snapshot is about to take the place of what was told, which counts no more: nothing is told until `restart_at`."""
        self._paused, self.applied = True, OffsetAndEpoch(0, 0)

    def restart_at(self, snapshot: OffsetAndEpoch) -> None:
        """The listener has what ``snapshot`` says. What follows it is told with the next `deliver`."""
        self._paused, self.applied = False, snapshot
        self.forget_kept()
        self._announce()

    def deliver(self) -> None:
        """What is committed and not told yet; after ``READ_BYTES`` or ``TURN_RECORDS`` the loop gets its turn first, and whatever
        is committed meanwhile has to wait."""
        told = 0
        if self._paused or self._goes_on:
            return
        self._confirm()
        while self.next_offset < self.high_watermark:
            if told >= TURN_RECORDS:
                self._goes_on = True
                self._call_soon(self._go_on)
                return
            if self._kept and self._kept[0].base_offset == self.next_offset:
                batch = self._take_kept()
                told += len(batch.records)
                self._tell(batch)
            else:
                self._deliver_from_log()
                told = TURN_RECORDS
        self._on_delivered()

    def _go_on(self) -> None:
        self._goes_on = False
        self.deliver()

    def _confirm(self) -> None:
        """Says that what was delivered stays: nothing below the high watermark is ever cut in this life."""
        if not self._confirmed and self.next_offset <= self.high_watermark:
            self._confirmed = True
            self._listener.on_confirmed()

    def _take_kept(self) -> CommittedBatch:
        batch = self._kept.popleft()
        self._kept_records -= len(batch.records)
        return batch

    def _deliver_from_log(self) -> None:
        start = self.next_offset
        until = min(self.high_watermark, self._kept[0].base_offset) if self._kept else self.high_watermark
        data = self._log.read(start, READ_BYTES, until, minimum_one=True).data
        told = 0
        for batch in committed_batches(bytes(data), start):
            self._tell(batch)
            told += len(batch.records)
            if told >= TURN_RECORDS:
                break
        assert self.next_offset > start, f"nothing readable at {start} below {until}"

    def _tell(self, batch: CommittedBatch) -> None:
        self.applied = OffsetAndEpoch(batch.last_offset + 1, batch.epoch)
        self._listener.on_commit(batch)
        self._announce()

    def _announce(self) -> None:
        change = self._pending_leader
        if change is not None and self.next_offset >= change.deliver_after:
            self._pending_leader = None
            self._listener.on_leader_change(LeaderAndEpoch(change.leader_id, change.epoch))
