"""A quorum node: the asyncio shell around the consensus core. It performs what the core asks for and reports what happens;
it contains no rule of the protocol.

Order is everything here. Events are handled one at a time; an event that arises while another is handled waits its turn.
The instructions of an event are performed in order before the next event; what must be durable is, when `_perform` returns,
except a Sync, whose end is an event of its own.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ottla.proto import quorum_pb2 as pb
from ottla.quorum import messages_proto
from ottla.quorum.accumulator import BatchAccumulator
from ottla.quorum.control_records import control_batch
from ottla.quorum.delivery import CommitDelivery
from ottla.quorum.describe import describe_quorum, description_to_proto
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.listener import LeaderAndEpoch, NotLeaderError, QuorumDescription, QuorumListener
from ottla.quorum.log_port import MetadataLog
from ottla.quorum.log_reading import answer_read
from ottla.quorum.log_start import align_log, log_summary, voter_history
from ottla.quorum.peers import Peers
from ottla.quorum.questions import Questions
from ottla.quorum.raft import instructions as do
from ottla.quorum.raft.core import RaftCore
from ottla.quorum.raft.events import (
    Event,
    LogSynced,
    PeerDisconnected,
    ResignRequested,
    ShutdownRequested,
    Started,
    Ticked,
)
from ottla.quorum.raft.membership import is_voter_change
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.rpc.transport import Reply, RpcTransport
from ottla.quorum.settings import QuorumSettings
from ottla.quorum.snapshot_exchange import SnapshotExchange
from ottla.quorum.snapshot_files import SnapshotFiles
from ottla.quorum.snapshotting import SnapshotSource, SnapshotTaker
from ottla.quorum.voter_changes import VoterChanges
from ottla.runtime.clock_loop import loop_ms
from ottla.runtime.host import Host
from ottla.runtime.key_value import KeyValueStore
from ottla.runtime.sync_later import SyncLater

_logger = logging.getLogger(__name__)

HAND_OVER_MS = 500
"""How long a leader that leaves waits for a successor."""


class QuorumFailure(Exception):
    """The node cannot go on: its disk failed, or something happened that must never happen."""


class QuorumNode:
    """One member or observer of the metadata quorum. All methods belong on the event loop.

    The assembly serves `handle_request` under `QUORUM_SERVICE`; everything else the node does by itself after `start`.
    """

    def __init__(
        self,
        settings: QuorumSettings,
        host: Host,
        transport: RpcTransport,
        log: MetadataLog,
        store: KeyValueStore,
        listener: QuorumListener,
        *,
        deliver_from: int = 0,
        sync_later: SyncLater | None = None,
        on_failure: Callable[[QuorumFailure], None] | None = None,
        snapshot_directory: str | None = None,
    ) -> None:
        """``deliver_from``: the first offset the listener has not applied. ``on_failure`` is told once, if ever. Without a
        ``snapshot_directory`` (that exists) no snapshots are taken or received. Raises LogStartError, ValueError, OSError."""
        self.settings = settings
        self.node_id = settings.node_id
        self._host = host
        self._log = log
        self._election_store = ElectionStore(store)
        self._sync_later = sync_later or SyncLater()
        self._on_failure = on_failure
        self._snapshots = SnapshotFiles(host.disk, snapshot_directory) if snapshot_directory is not None else None
        align_log(log, self._snapshots)
        self._core = RaftCore(
            settings.raft(),
            settings.key,
            settings.own_endpoint,
            host.rng,
            log_summary(log, self._snapshots),
            voter_history(log, settings.voter_set(), self._snapshots),
            self._election_store.load(),
        )
        self._taker = None if self._snapshots is None else self._snapshot_taker(self._snapshots)
        self._first_epoch = self._core.state.epoch  # what others tell of it, or of earlier ones, was a life before this
        self._peers = Peers(transport, self._peer_broken)
        self.voter_changes = VoterChanges(self._core.state, self._peers, transport, self._handle)
        self._questions = Questions(settings, self._core.state, self._peers, self._handle, self._give_up)
        self.on_peer_broken: Callable[[int], None] | None = None
        self._delivery = CommitDelivery(log, listener, deliver_from, self._deliver_later, self._delivered)
        self._exchange = SnapshotExchange(self._snapshots, log, listener, self._delivery)
        self._accumulator: BatchAccumulator | None = None
        self._events: deque[Event] = deque()
        self._handling = False
        self._stopped = True
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._linger: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._syncs = 0
        self._failure: QuorumFailure | None = None
        self._change_waiters: list[asyncio.Future[None]] = []

    # --- life ---------------------------------------------------------------------------------------------------------

    def _snapshot_taker(self, files: SnapshotFiles) -> SnapshotTaker:
        limits, state, clock = self.settings.snapshots, self._core.state, self._host.clock
        return SnapshotTaker(files, self._log, state, limits, clock, self._handle, self._cannot_go_on)

    def set_snapshot_source(self, source: SnapshotSource) -> None:
        """From now on snapshots are taken of it."""
        if self._taker is not None:
            self._taker.source = source

    async def start(self) -> None:
        """Takes part from here on. A listener that stands before the log's start is given the latest snapshot first.
        Raises LogStartError when that is damaged, OSError."""
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self._exchange.begin(self._core.state.log.snapshot)
        if self._taker is not None:
            self._taker.start()
        self._handle(Started())

    async def stop(self, graceful: bool) -> None:
        """Leaves. Gracefully, a leader first commits what it appended and sees a successor elected (or waits
        ``HAND_OVER_MS``)."""
        if self._stopped:
            return
        if graceful:
            self._flush()
            self._handle(ShutdownRequested())
            await self._wait_for_successor()
        self._stopped = True
        for handle in (self._timer, self._linger):
            if handle is not None:
                handle.cancel()
        self._peers.close()
        self._sync_later.close()
        if self._taker is not None:
            await self._taker.stop()

    async def _wait_for_successor(self) -> None:
        """It may need this node's vote: stay until a new epoch shows up. The only voter has nobody to wait for."""
        state, deadline = self._core.state, self._loop.time() + HAND_OVER_MS / 1000
        while (
            isinstance(state.role, Leader | Resigned) and len(state.voters.latest) > 1 and self._loop.time() < deadline
        ):
            waiter = self._loop.create_future()
            self._change_waiters.append(waiter)
            timer = self._loop.call_at(deadline, _resolve, waiter)
            await waiter
            timer.cancel()

    # --- what the application asks ------------------------------------------------------------------------------------

    @property
    def leader(self) -> LeaderAndEpoch:
        state = self._core.state
        return LeaderAndEpoch(state.known_leader_id, state.epoch)

    @property
    def is_leader(self) -> bool:
        return isinstance(self._core.state.role, Leader)

    @property
    def high_watermark(self) -> int:
        return self._core.state.high_watermark

    @property
    def next_offset(self) -> int:
        """The offset the next appended record will get (meaningful on the leader)."""
        accumulator = self._accumulator
        return self._core.state.log.end if accumulator is None else accumulator.next_offset

    def append(self, records: Sequence[bytes], epoch: int, cause: str = "") -> int:
        """Appends one batch (committed whole or not at all) and returns the offset of its last record at once.

        ``cause`` says which request or event made it and stays with the batch. Raises NotLeaderError unless this node
        leads ``epoch``; KafkaError (RECORD_LIST_TOO_LARGE) when the batch is. Whether it commits, `on_commit` tells; it
        may never, if the leadership is lost.
        """
        accumulator = self._accumulator
        if accumulator is None or accumulator.epoch != epoch or self._stopped:
            raise NotLeaderError(self.leader)
        last = accumulator.append(records, self._host.clock.wall_ms(), cause)
        self._plan_flush()
        return last

    def resign(self, epoch: int) -> None:
        """Gives up the leadership of ``epoch``: the application cannot go on."""
        self._handle(ResignRequested(epoch))

    def describe(self) -> QuorumDescription:
        return describe_quorum(self._core.state, loop_ms(self._loop), self._host.clock.wall_ms())

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """Where a controller listens: the leader as it announced itself, another as the voter set says."""
        state = self._core.state
        return state.leader_endpoint() if node_id == state.known_leader_id else state.voters.latest.endpoint(node_id)

    def handle_request(self, message: pb.QuorumRequest, reply: Reply) -> None:
        """A request from another node. ``reply`` is called once, perhaps much later; never after `stop`."""
        if message.WhichOneof("body") == "describe_quorum":
            reply(description_to_proto(self.describe(), self.is_leader, self._core.state.key))
            return
        if message.WhichOneof("body") == "read_log":
            reply(answer_read(self._log, self._snapshots, self.high_watermark, message.read_log))
            return
        self.voter_changes.decide(messages_proto.request_from_proto(message), reply)

    def _peer_broken(self, peer: int) -> None:
        self._handle(PeerDisconnected(peer))
        if self.on_peer_broken is not None:
            self.on_peer_broken(peer)

    # --- events -------------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        """One event at a time; those that come up meanwhile follow."""
        if self._stopped or self._failure is not None:
            return
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events and self._failure is None:
                event = self._events.popleft()
                if is_voter_change(event) and self._accumulator:
                    self._step(self._drain(self._accumulator))  # what was given offsets comes before the new voter set
                self._step(event)
        except Exception as error:  # noqa: BLE001 - the log's, the disk's or the listener's: what follows relies on it
            self._cannot_go_on(error)
        finally:
            self._handling = False
        self._plan_tick()

    def _step(self, event: Event) -> None:
        for instruction in self._core.handle(event, loop_ms(self._loop)):
            self._perform(instruction)
        self._follow_leadership()

    def _cannot_go_on(self, error: Exception) -> None:
        self._fail(QuorumFailure(f"the quorum node cannot go on: {error}"), error)

    def _give_up(self, reason: str) -> None:
        self._fail(QuorumFailure(reason))

    def _fail(self, failure: QuorumFailure, cause: BaseException | None = None) -> None:
        """Stops at once: what follows in the list would rely on what failed."""
        failure.__cause__ = cause
        self._failure = failure
        self._events.clear()
        _logger.error("%s", failure, exc_info=cause)
        self._peers.close()
        if self._taker is not None:
            self._taker.halt()
        if self._on_failure is not None:
            self._on_failure(failure)

    def _follow_leadership(self) -> None:
        """Appends are taken exactly while the core leads; what waited for an epoch that is over is dropped."""
        role, accumulator = self._core.state.role, self._accumulator
        if isinstance(role, Leader):
            if self._core.state.shutting_down:
                self._accumulator = None
            elif accumulator is None or accumulator.epoch != role.epoch:
                end = self._core.state.log.end
                self._accumulator = BatchAccumulator(role.epoch, end, self.settings.batch_bytes_max)
                self._delivery.forget_kept()
            elif not accumulator:
                accumulator.next_offset = self._core.state.log.end  # past what the core itself appended
        else:
            self._accumulator = None
            self._delivery.forget_kept()
        waiters, self._change_waiters = self._change_waiters, []
        for waiter in waiters:
            _resolve(waiter)

    def _plan_tick(self) -> None:
        """One loop timer, for the earliest deadline. A later deadline lets it fire in vain, which costs less than moving it."""
        deadline = self._core.next_deadline_ms()
        if deadline is None or self._stopped or self._failure is not None:
            return
        when = deadline / 1000
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(when, self._tick), when

    def _tick(self) -> None:
        self._timer = None
        self._handle(Ticked())

    # --- instructions -------------------------------------------------------------------------------------------------

    def _perform(self, instruction: do.Instruction) -> None:
        _PERFORM[type(instruction)](self, instruction)

    def _persist(self, instruction: do.PersistElection) -> None:
        self._election_store.save(instruction.state)

    def _respond(self, instruction: do.Respond) -> None:
        instruction.token(messages_proto.response_to_proto(instruction.response))

    def _read_and_respond(self, instruction: do.ReadAndRespond) -> None:
        read = self._log.read(instruction.offset, instruction.max_bytes, instruction.limit, minimum_one=True)
        message = messages_proto.response_to_proto(instruction.response)
        message.fetch.records = bytes(read.data)
        instruction.token(message)

    def _append_batches(self, instruction: do.AppendBatches) -> None:
        self._log.append_as_follower(instruction.data, instruction.batches[-1].epoch)
        if self._taker is not None:
            self._taker.note_appended(len(instruction.data))
        for batch in instruction.batches:
            if batch.voters is not None:
                _logger.info("voters from offset %d on: %s", batch.base_offset, batch.voters.ids())

    def _append_control(self, instruction: do.AppendControl) -> None:
        batch = control_batch(instruction, self._host.clock.wall_ms())
        self._log.append_as_follower(bytes(batch), instruction.epoch)
        for record in instruction.records:
            if isinstance(record, do.Voters):
                _logger.info("voters from offset %d on: %s", instruction.offset, record.voters.ids())

    def _truncate(self, instruction: do.TruncateTo) -> None:
        _logger.info("truncating the metadata log to %d", instruction.offset)
        self._log.truncate_to(instruction.offset)

    def _sync(self, instruction: do.Sync) -> None:
        self._syncs += 1
        self._sync_later.sync(self._log.active_file, lambda error: self._synced(instruction.end_offset, error))

    def _synced(self, end_offset: int, error: OSError | None) -> None:
        self._syncs -= 1
        if self._stopped or self._failure is not None:
            return  # whoever owns the log may have closed it
        if error is not None:
            self._fail(QuorumFailure(f"the metadata log cannot be synced: {error}"), error)
            return
        self._log.mark_synced(end_offset)
        self._handle(LogSynced(end_offset))
        if self._accumulator:
            self._flush()

    def _commit(self, instruction: do.CommitAdvanced) -> None:
        self._log.set_high_watermark(instruction.high_watermark)
        self._delivery.commit(instruction.high_watermark)

    def _leader_changed(self, instruction: do.LeaderChanged) -> None:
        _logger.info("epoch %d: leader %s", instruction.epoch, instruction.leader_id)
        led_here = isinstance(self._core.state.role, Leader | Resigned)
        if instruction.leader_id == self.node_id and instruction.epoch > self._first_epoch and not led_here:
            _logger.warning(
                "the others say that node %d leads epoch %d, which was not this process: if its disk was not replaced, "
                "another running process has the same node.id",
                self.node_id,
                instruction.epoch,
            )
        self._delivery.leader_changed(instruction)

    def _delivered(self) -> None:
        if self._taker is not None:
            self._taker.committed(loop_ms(self._loop))

    def _read_snapshot(self, instruction: do.ReadSnapshotAndRespond) -> None:
        self._exchange.give(instruction, lambda: self._stopped)

    def _install(self, instruction: do.InstallSnapshot) -> None:
        self._events.appendleft(self._exchange.install(instruction))

    def _fault(self, instruction: do.Fault) -> None:
        self._give_up(f"{instruction.kind}: {instruction.detail}")

    def _deliver_later(self) -> None:
        self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        if self._stopped or self._failure is not None:
            return
        try:
            self._delivery.deliver()
        except Exception as error:  # noqa: BLE001 - as in `_handle`
            self._cannot_go_on(error)

    # --- appends ------------------------------------------------------------------------------------------------------

    def _plan_flush(self) -> None:
        """An idle leader appends in this very turn of the loop; while a sync runs, appends gather until it ends (or for
        the linger): they can share the next one."""
        if self._flush_planned:
            return
        self._flush_planned = True
        if self._syncs == 0:
            self._loop.call_soon(self._flush)
        else:
            self._linger = self._loop.call_later(self.settings.append_linger_ms / 1000, self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        accumulator = self._accumulator
        if not accumulator or self._stopped:
            return
        self._handle(self._drain(accumulator))

    def _drain(self, accumulator: BatchAccumulator) -> Event:
        event, committable = accumulator.drain()
        self._delivery.keep(committable)
        return event


def _resolve(waiter: "asyncio.Future[Any]", result: Any = None) -> None:
    if not waiter.done():
        waiter.set_result(result)


_PERFORM: dict[type[Any], Callable[[QuorumNode, Any], None]] = {
    do.PersistElection: QuorumNode._persist,
    do.SendRequest: lambda node, instruction: node._questions.ask(instruction),
    do.Respond: QuorumNode._respond,
    do.ReadAndRespond: QuorumNode._read_and_respond,
    do.AppendBatches: QuorumNode._append_batches,
    do.AppendControl: QuorumNode._append_control,
    do.TruncateTo: QuorumNode._truncate,
    do.Sync: QuorumNode._sync,
    do.CommitAdvanced: QuorumNode._commit,
    do.LeaderChanged: QuorumNode._leader_changed,
    do.ReadSnapshotAndRespond: QuorumNode._read_snapshot,
    do.StoreSnapshotChunk: lambda node, instruction: node._exchange.take(instruction),
    do.InstallSnapshot: QuorumNode._install,
    do.Fault: QuorumNode._fault,
}
