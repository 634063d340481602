"""What each kind of fault does to the simulated cluster."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.quorum.raft.events import ShutdownRequested
from ottla.quorum.raft.messages import AddVoterRequest, RemoveVoterRequest, Request
from ottla.quorum.raft.voters import ReplicaKey
from ottla.testing.raft.faults import FaultEvent, FaultKind
from ottla.testing.raft.wiping import can_do_without, may_remove, wipe

if TYPE_CHECKING:
    from ottla.testing.raft.cluster import Node, RaftCluster
    from ottla.testing.raft.memory import MemoryReplica

LEAVING_US = 19_000
"""How long a node that shuts down stays to hand over; less than the shortest fault lasts, so that its restart comes after."""


def inflict(cluster: "RaftCluster", fault: FaultEvent) -> None:
    if fault.kind is FaultKind.HEAL:
        cluster.network.heal(fault.node)
    else:
        _FAULTS[fault.kind](cluster, cluster.nodes[fault.node], fault)


def _stop(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    cluster.stop(node, silently=fault.kind is FaultKind.POWER_OFF)


def _crash_amid(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    node.dies_after = fault.amount


def _restart(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    cluster.start(node)


def _shut_down(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    life = node.life

    def leave() -> None:
        if node.life != life:
            return
        cluster.stop(node, silently=False)
        if cluster.is_fair:
            cluster.start(node)  # it was still there when all that was down was started again

    cluster.deliver(node, life, ShutdownRequested())
    cluster.at(LEAVING_US, leave)


def _wipe(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    wipe(cluster, node, fault.amount)


def _pause(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    cluster.pause(node, fault.amount)


def _turn_disk(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    node.slow_disk = fault.kind is FaultKind.SLOW_DISK


def _cut(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    cluster.network.cut(fault)


def _reset(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    cluster.reset_streams(node)


def _clock_rate(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    cluster.turn_clock(node, rate=node.clock.usual_rate * fault.amount / 1000)


def _clock_jump(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    cluster.turn_clock(node, jump_us=fault.amount)


def _take_snapshot(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    event = None if node.replica is None or node.held is not None else node.replica.snapshot_event()
    if event is not None:
        cluster.deliver(node, node.life, event)


def _move(cluster: "RaftCluster", node: "Node", fault: FaultEvent) -> None:
    """Only where the others can still elect somebody who will write the new address down; and never the first node: of those
    whom the configuration names, somebody must be there still, for the first node too."""
    leader = cluster.leader()
    if node.id == 1 or leader is None or leader.replica is None or _is_moving(cluster, leader.replica):
        return
    named = cluster.settings.bootstrap
    if node.endpoint in named and sum(other.endpoint in named for other in cluster.nodes.values()) < 3:
        return
    if cluster.wiped_at_us >= 0 and not can_do_without(cluster, node):
        return
    state = leader.replica.core.state
    if len(state.voters.latest) > 2 and 0 <= state.voters.latest_offset < state.high_watermark:
        cluster.stop(node, silently=False)
        node.endpoint = node.endpoint._replace(port=node.endpoint.port + 1000)
        cluster.start(node)


def _is_moving(cluster: "RaftCluster", leader: "MemoryReplica") -> bool:
    """Whether a voter is elsewhere than the leader's log says."""
    voters = leader.core.state.voters.latest.voters
    return any(cluster.nodes[voter.key.id].endpoint != voter.endpoint for voter in voters)


def _change_voters(cluster: "RaftCluster", node: "Node", change: FaultEvent) -> None:
    leader = cluster.leader()
    if leader is None or leader.replica is None:
        return
    if change.kind is FaultKind.REMOVE_VOTER and _is_moving(cluster, leader.replica):
        return  # the two that are left might not find one another
    if change.kind is FaultKind.REMOVE_VOTER and not may_remove(cluster, leader, node):
        return
    fields: dict[str, Any] = {"cluster_id": cluster.settings.cluster_id, "epoch": 0, "sender": ReplicaKey(-1)}
    request: Request = RemoveVoterRequest(voter=node.key, **fields)
    if change.kind is FaultKind.ADD_VOTER:
        request = AddVoterRequest(voter=node.key, endpoint=node.endpoint, **fields)
    cluster.administer(leader, request)


_FAULTS: dict[FaultKind, Callable[["RaftCluster", "Node", FaultEvent], None]] = {
    FaultKind.CRASH: _stop,
    FaultKind.CRASH_AMID: _crash_amid,
    FaultKind.POWER_OFF: _stop,
    FaultKind.RESTART: _restart,
    FaultKind.SHUTDOWN: _shut_down,
    FaultKind.WIPE: _wipe,
    FaultKind.PAUSE: _pause,
    FaultKind.SLOW_DISK: _turn_disk,
    FaultKind.FAST_DISK: _turn_disk,
    FaultKind.ISOLATE: _cut,
    FaultKind.MUTE: _cut,
    FaultKind.DEAFEN: _cut,
    FaultKind.CUT: _cut,
    FaultKind.RESET: _reset,
    FaultKind.CLOCK_RATE: _clock_rate,
    FaultKind.CLOCK_JUMP: _clock_jump,
    FaultKind.SNAPSHOT: _take_snapshot,
    FaultKind.ADD_VOTER: _change_voters,
    FaultKind.REMOVE_VOTER: _change_voters,
    FaultKind.MOVE: _move,
}
