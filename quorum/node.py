"""A quorum node: the asyncio shell around the consensus core, put together. It contains no rule of the protocol.

``core_driver`` hands the core its events, ``performing`` does what the core asks for, ``group_commit`` takes what is appended,
``delivery`` tells the application what is committed. Here are the node's life and what can be asked of it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from ottla.proto import quorum_pb2 as pb
from ottla.quorum import messages_proto
from ottla.quorum.core_driver import CoreDriver
from ottla.quorum.delivery import CommitDelivery
from ottla.quorum.describe import describe_quorum, description_to_proto, quorum_members
from ottla.quorum.election_store import ElectionStore
from ottla.quorum.group_commit import GroupCommit
from ottla.quorum.listener import (
    CommittedBatch,
    LeaderAndEpoch,
    QuorumDescription,
    QuorumFailure,
    QuorumListener,
    QuorumMembers,
)
from ottla.quorum.log_port import MetadataLog
from ottla.quorum.log_reading import answer_read, last_batches
from ottla.quorum.log_start import align_log, log_summary, voter_history
from ottla.quorum.metrics import QuorumObservation
from ottla.quorum.peers import Peers
from ottla.quorum.performing import Performer
from ottla.quorum.questions import Questions
from ottla.quorum.raft.core import RaftCore
from ottla.quorum.raft.events import (
    PeerDisconnected,
    RackMatesLearned,
    ResignRequested,
    ShutdownRequested,
    Started,
)
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.voters import Endpoint
from ottla.quorum.rpc.transport import BadRequest, Reply, RpcTransport
from ottla.quorum.settings import QuorumSettings
from ottla.quorum.snapshots.exchange import SnapshotExchange
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.quorum.snapshots.image_fit import BEGINNING, Fit, fit
from ottla.quorum.snapshots.taking import SnapshotSource, SnapshotTaker
from ottla.quorum.synced_mark import SyncedMark
from ottla.quorum.voter_changes import OnChanged, VoterChanges
from ottla.runtime.host import Host
from ottla.runtime.key_value import KeyValueStore
from ottla.runtime.sync_later import SyncLater

PRESENT_MS = 10_000
"""A node whose last fetch is older follows the log no more, as far as others can know."""
HAND_OVER_MS = 500
"""How long a leader that leaves waits for a successor."""


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
        applied: OffsetAndEpoch = BEGINNING,
        sync_later: SyncLater | None = None,
        on_failure: Callable[[QuorumFailure], None] | None = None,
        on_peer_broken: Callable[[int], None] | None = None,
        snapshot_directory: str | None = None,
    ) -> None:
        """``applied``: where the listener stands, and the epoch of the last record it applied. ``on_failure`` is told once, if ever,
        ``on_peer_broken`` each time that a connection to a peer broke. Without a
        ``snapshot_directory`` (that exists) no snapshots are taken or received. Raises LogStartError, QuorumStateError, ValueError,
        OSError."""
        self.settings = settings
        self.node_id = settings.node_id
        self._clock = host.clock
        self._log = log
        self._on_failure = on_failure
        self._snapshots = SnapshotFiles(host.disk, snapshot_directory) if snapshot_directory is not None else None
        mark = SyncedMark(store)
        align_log(log, self._snapshots, mark)
        elections = ElectionStore(store, settings.cluster_id, settings.node_id)
        core = _recovered(settings, host.rng, log, self._snapshots, elections)
        self._state = state = core.state
        mark.begin(state.log.durable_end)
        self._driver = driver = CoreDriver(core, self._failed, host.loop_watch)
        self._taker = None if self._snapshots is None else self._snapshot_taker(self._snapshots)
        self._peers = Peers(transport, self._peer_broken)
        self.voter_changes = VoterChanges(state, self._peers, transport, driver.handle)
        self._on_peer_broken = on_peer_broken
        delivery = CommitDelivery(log, listener, applied, driver.call_soon, self._delivered)
        self._exchange = SnapshotExchange(self._snapshots, log, listener, delivery, driver)
        self._commits = GroupCommit(settings, state, host.clock, log, sync_later or SyncLater(), delivery, driver, mark)
        self._performer = Performer(
            state,
            driver,
            host.clock,
            log,
            elections,
            mark,
            delivery=delivery,
            commits=self._commits,
            questions=Questions(settings, state, self._peers, driver.handle, driver.fail),
            exchange=self._exchange,
            taker=self._taker,
        )

    def _snapshot_taker(self, files: SnapshotFiles) -> SnapshotTaker:
        limits, driver = self.settings.snapshots, self._driver
        return SnapshotTaker(files, self._log, self._state, limits, self._clock, driver.handle, driver.cannot_go_on)

    # --- life ---------------------------------------------------------------------------------------------------------

    def set_snapshot_source(self, source: SnapshotSource) -> None:
        """From now on snapshots are taken of it."""
        if self._taker is not None:
            self._taker.source = source

    def applied_lately(self, applied: OffsetAndEpoch, records_max: int) -> Iterator[CommittedBatch]:
        """What a listener that stands at ``applied`` is not told again: the last of it, unless it begins anew. To be read before `start`."""
        goes_on = fit(applied, self._state.log) is Fit.GO_ON
        return last_batches(self._log, applied.offset, records_max) if goes_on else iter(())

    async def start(self) -> None:
        """Takes part from here on. A listener that stands before the log's start, or has what the log does not say, is given the
        latest snapshot first, or nothing. Raises LogStartError when that is damaged, OSError."""
        await self._exchange.begin(self._state.log)
        self._driver.start(self._performer.perform, self._commits)
        if self._taker is not None:
            self._taker.start()
        self._driver.handle(Started())

    async def stop(self, graceful: bool) -> None:
        """Leaves. Gracefully, a leader first commits what it appended and sees a successor elected (or waits
        ``HAND_OVER_MS``)."""
        if self._driver.stopped:
            return
        if graceful:
            self._commits.flush()
            self._driver.handle(ShutdownRequested())
            await self._wait_for_successor()
        self._driver.stop()
        self._peers.close()
        self._commits.close()
        await self._exchange.stop()
        if self._taker is not None:
            await self._taker.stop()

    async def _wait_for_successor(self) -> None:
        """Waits until the successor greets: it may need this node's vote, and the answer must have left. The only voter has
        nobody to wait for, and a follower no reason."""
        state, loop = self._state, asyncio.get_running_loop()
        deadline = loop.time() + HAND_OVER_MS / 1000
        if not isinstance(state.role, Leader | Resigned) or len(state.voters.latest) == 1:
            return
        while (self.is_leader or state.known_leader_id is None) and loop.time() < deadline:
            await self._driver.wait_for_step(deadline)

    def _failed(self, failure: QuorumFailure) -> None:
        self._peers.close()
        if self._taker is not None:
            self._taker.halt()
        if self._on_failure is not None:
            self._on_failure(failure)

    def _delivered(self) -> None:
        if self._taker is not None:
            self._taker.committed(self._driver.now_ms())

    def _peer_broken(self, peer: int) -> None:
        self._driver.handle(PeerDisconnected(peer))
        if self._on_peer_broken is not None:
            self._on_peer_broken(peer)

    # --- what the application asks ------------------------------------------------------------------------------------

    @property
    def leader(self) -> LeaderAndEpoch:
        return self._driver.leader

    @property
    def is_leader(self) -> bool:
        return isinstance(self._state.role, Leader)

    @property
    def high_watermark(self) -> int:
        return self._state.high_watermark

    @property
    def kraft_version(self) -> int:
        """The finalized level: of what is committed."""
        state = self._state
        return state.voters.kraft_version_at(state.high_watermark)

    def members(self) -> QuorumMembers:
        return quorum_members(self._state, self._driver.now_ms(), PRESENT_MS)

    def upgrade_kraft_version(self, on_done: OnChanged, *, validate_only: bool) -> None:
        """From 0 to 1; see `VoterChanges.upgrade`."""
        self.voter_changes.upgrade(on_done, validate_only=validate_only)

    @property
    def next_offset(self) -> int:
        """The offset the next appended record will get (meaningful on the leader)."""
        return self._commits.next_offset

    def append(self, records: Sequence[bytes], epoch: int, cause: str = "") -> int:
        """Appends one batch (committed whole or not at all) and returns the offset of its last record at once.

        ``cause`` says which request or event made it and stays with the batch. Raises NotLeaderError unless this node
        leads ``epoch``; KafkaError (RECORD_LIST_TOO_LARGE) when the batch is. Whether it commits, `on_commit` tells; it
        may never, if the leadership is lost.
        """
        return self._commits.append(records, epoch, cause)

    def set_rack_mates(self, nodes: Iterable[int]) -> None:
        """The nodes in this one's rack: an observer prefers a voter among them."""
        self._driver.handle(RackMatesLearned(frozenset(nodes)))

    def resign(self, epoch: int) -> None:
        """Gives up the leadership of ``epoch``: the application cannot go on."""
        self._driver.handle(ResignRequested(epoch))

    def describe(self) -> QuorumDescription:
        return describe_quorum(self._state, self._driver.now_ms(), self._clock.wall_ms())

    def observed(self) -> QuorumObservation:
        """What the metrics read, as it stands now."""
        driver = self._driver
        return QuorumObservation(self._state, self._snapshots, driver.meters, driver.now_ms(), self._clock.wall_ms())

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """Where a controller listens: the leader as it announced itself, another as the voter set says."""
        state = self._state
        return state.leader_endpoint() if node_id == state.known_leader_id else state.voters.latest.endpoint(node_id)

    def handle_request(self, message: pb.QuorumRequest, reply: Reply) -> None:
        """A request from another node. ``reply`` is called once, perhaps much later; never before `start` is through or
        after `stop`. Raises BadRequest."""
        if self._driver.stopped:
            return
        if message.WhichOneof("body") == "describe_quorum":
            own = self._state.key
            reply(description_to_proto(self.describe(), self.is_leader, own, self.kraft_version))
            return
        if message.WhichOneof("body") == "read_log":
            reply(answer_read(self._log, self._snapshots, self.high_watermark, message.read_log))
            return
        try:
            request = messages_proto.request_from_proto(message)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        self.voter_changes.decide(request, reply)


def _recovered(
    settings: QuorumSettings, rng: Random, log: MetadataLog, snapshots: SnapshotFiles | None, elections: ElectionStore
) -> RaftCore:
    """The core with what the last life left on disk."""
    return RaftCore(
        settings.raft(),
        settings.key,
        settings.own_endpoint,
        rng,
        log_summary(log, snapshots),
        voter_history(log, settings.voter_set(), snapshots),
        elections.load(log.log_end_offset if settings.is_voter else 0),
    )
