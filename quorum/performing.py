"""Performs what the consensus core asks for. No rule of the protocol is here: the core decides, this does."""

import logging
from collections.abc import Callable
from typing import Any

from ottla.quorum import messages_proto
from ottla.quorum.complaints import HISTORY_GONE
from ottla.quorum.control_records import control_batch
from ottla.quorum.core_driver import CoreDriver
from ottla.quorum.delivery import CommitDelivery
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.group_commit import GroupCommit
from ottla.quorum.log_port import MetadataLog
from ottla.quorum.questions import Questions
from ottla.quorum.raft import instructions as do
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.state import RaftState
from ottla.quorum.snapshots.exchange import SnapshotExchange
from ottla.quorum.snapshots.taking import SnapshotTaker
from ottla.quorum.synced_mark import SyncedMark
from ottla.runtime.clock import Clock

_FORGOTTEN = (do.FaultKind.COMMITTED_TRUNCATION, do.FaultKind.TWO_LEADERS)
"""What nobody can do but a disk that went back in time, or was replaced."""

_logger = logging.getLogger(__name__)


class Performer:
    """What an instruction makes durable is, when `perform` returns; except a Sync. Errors of disk and log go to the caller."""

    def __init__(
        self,
        state: RaftState,
        driver: CoreDriver,
        clock: Clock,
        log: MetadataLog,
        election_store: ElectionStore,
        mark: SyncedMark,
        *,
        delivery: CommitDelivery,
        commits: GroupCommit,
        questions: Questions,
        exchange: SnapshotExchange,
        taker: SnapshotTaker | None,
    ) -> None:
        self._state = state
        self._driver = driver
        self._clock = clock
        self._log = log
        self._mark = mark
        self._delivery = delivery
        self._exchange = exchange
        self._taker = taker
        self._first_epoch = state.epoch  # what others tell of it, or of earlier ones, was a life before this
        self._by_type: dict[type[Any], Callable[[Any], None]] = {
            do.PersistElection: lambda instruction: election_store.save(instruction.state),
            do.SendRequest: questions.ask,
            do.Respond: self._respond,
            do.ReadAndRespond: self._read_and_respond,
            do.AppendBatches: self._append_batches,
            do.AppendControl: self._append_control,
            do.TruncateTo: self._truncate,
            do.Sync: commits.sync,
            do.CommitAdvanced: self._commit,
            do.LeaderChanged: self._leader_changed,
            do.ReadSnapshotAndRespond: self._read_snapshot,
            do.StoreSnapshotChunk: exchange.take,
            do.InstallSnapshot: self._install,
            do.Fault: self._fault,
        }

    def perform(self, instruction: do.Instruction) -> None:
        self._by_type[type(instruction)](instruction)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _respond(self, instruction: do.Respond) -> None:
        instruction.token(messages_proto.response_to_proto(instruction.response))

    def _read_and_respond(self, instruction: do.ReadAndRespond) -> None:
        read = self._log.read(instruction.offset, instruction.max_bytes, instruction.limit, minimum_one=True)
        message = messages_proto.response_to_proto(instruction.response)
        message.fetch.records = bytes(read.data)
        instruction.token(message)

    def _read_snapshot(self, instruction: do.ReadSnapshotAndRespond) -> None:
        self._exchange.give(instruction, lambda: self._driver.stopped)

    # --- the log ------------------------------------------------------------------------------------------------------

    def _append_batches(self, instruction: do.AppendBatches) -> None:
        first, last, state = instruction.batches[0], instruction.batches[-1], self._state
        self._log.append_as_follower(instruction.data, last.epoch)
        self._driver.meters.appended(
            first.base_offset, last.last_offset + 1, leads=isinstance(state.role, Leader), now_ms=state.now_ms
        )
        if self._taker is not None:
            self._taker.note_appended(len(instruction.data))
        for batch in instruction.batches:
            if batch.voters is not None:
                _logger.info("voters from offset %d on: %s", batch.base_offset, batch.voters.ids())

    def _append_control(self, instruction: do.AppendControl) -> None:
        batch = control_batch(instruction, self._clock.wall_ms())
        self._log.append_as_follower(bytes(batch), instruction.epoch)
        for record in instruction.records:
            if isinstance(record, do.Voters):
                _logger.info("voters from offset %d on: %s", instruction.offset, record.voters.ids())

    def _truncate(self, instruction: do.TruncateTo) -> None:
        _logger.info("truncating the metadata log to %d", instruction.offset)
        self._mark.cut_at(instruction.offset)
        self._exchange.before_cut(instruction.offset)
        self._log.truncate_to(instruction.offset)
        self._exchange.after_cut(self._state.log)

    def _install(self, instruction: do.InstallSnapshot) -> None:
        self._mark.cut_at(0)
        installed = self._exchange.install(instruction)
        if installed.snapshot is None and self._state.settings.can_vote:  # a plain broker syncs nothing
            self._mark.raise_to(self._state.log.durable_end)  # the log stays, for as long as nobody has a sound one
        self._driver.handle_first(installed)

    # --- what the application learns ----------------------------------------------------------------------------------

    def _commit(self, instruction: do.CommitAdvanced) -> None:
        self._log.set_high_watermark(instruction.high_watermark)
        self._driver.meters.committed(instruction.high_watermark, self._state.now_ms)
        self._delivery.commit(instruction.high_watermark)

    def _leader_changed(self, instruction: do.LeaderChanged) -> None:
        _logger.info("epoch %d: leader %s", instruction.epoch, instruction.leader_id)
        own_id = self._state.key.id
        led_here = isinstance(self._state.role, Leader | Resigned)
        if instruction.leader_id == own_id and instruction.epoch > self._first_epoch and not led_here:
            _logger.warning(
                "the others say that node %d leads epoch %d, which was not this process: if its disk was not replaced, "
                "another running process has the same node.id",
                own_id,
                instruction.epoch,
            )
        self._delivery.leader_changed(instruction)

    def _fault(self, instruction: do.Fault) -> None:
        advice = f"; {HISTORY_GONE}" if instruction.kind in _FORGOTTEN else ""
        self._driver.fail(f"{instruction.kind}: {instruction.detail}{advice}")
