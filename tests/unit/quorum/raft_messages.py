"""What tests of the core hand it, and cores that have a role already."""

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import (
    AppendRequested,
)
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.messages import (
    BatchInfo,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    Records,
    VoteRequest,
)
from ottla.quorum.raft.timers import Timer
from tests.unit.quorum.raft_core import CLUSTER, OneCore, endpoint, key


def vote(node: int, epoch: int, *, pre_vote: bool = False, last: tuple[int, int] = (0, 0), to: int = 1) -> VoteRequest:
    return VoteRequest(
        cluster_id=CLUSTER,
        epoch=epoch,
        sender=key(node),
        receiver=key(to),
        last=OffsetAndEpoch(*last),
        pre_vote=pre_vote,
    )


def begin(node: int, epoch: int, **fields: object) -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(
        cluster_id=CLUSTER,
        epoch=epoch,
        sender=key(node),
        endpoint=endpoint(node),
        **fields,  # type: ignore[arg-type]  # keywords of many types
    )


def end(node: int, epoch: int, *successors: int) -> EndQuorumEpochRequest:
    preferred = tuple(key(successor) for successor in successors)
    return EndQuorumEpochRequest(
        cluster_id=CLUSTER, epoch=epoch, sender=key(node), endpoint=endpoint(node), preferred=preferred
    )


def log_of(*epochs: int) -> LogSummary:
    log = LogSummary()
    for offset, epoch in enumerate(epochs):
        log.append(epoch, offset, offset + 1)
    log.durable_end = log.end
    return log


def records(base: int, epoch: int, count: int = 1) -> Records:
    return Records(b"x" * count, tuple(BatchInfo(base + index, base + index, epoch) for index in range(count)))


def append(core: OneCore, epoch: int | None = None) -> None:
    own = core.state.epoch if epoch is None else epoch
    core.tell(AppendRequested(own, b"x", records(core.state.log.end, own).batches))


def follower(*epochs: int, leader: int = 2) -> OneCore:
    """Of node 2, with a record of each of these epochs; it has asked for more."""
    core = OneCore(1, 2, 3, log=log_of(*epochs), election=ElectionState(max(epochs, default=0)))
    core.ask(begin(leader, max(epochs, default=0) + 1))
    return core


def prospective(epoch: int = 0) -> OneCore:
    core = OneCore(1, 2, 3, election=ElectionState(epoch))
    core.expire(Timer.ELECTION)
    return core


def candidate() -> OneCore:
    core = prospective()
    core.grant(2)
    return core


def leader(*epochs: int) -> OneCore:
    """Whose first record is durable here and nowhere else."""
    core = OneCore(1, 2, 3, log=log_of(*epochs), election=ElectionState(max(epochs, default=0))).elect(2)
    core.sync()
    return core


def resigned() -> OneCore:
    """After a crash in which it lost all it had appended: a log like any other's."""
    return OneCore(1, 2, 3, election=ElectionState(4, leader_id=1))


# --- snapshots (D 5, KIP-630) -------------------------------------------------------------------------------------------


def snapshot_request(node: int, epoch: int, position: int = 0) -> FetchSnapshotRequest:
    return FetchSnapshotRequest(
        cluster_id=CLUSTER,
        epoch=epoch,
        sender=key(node),
        snapshot=OffsetAndEpoch(1, 1),
        position=position,
        max_bytes=100,
    )
