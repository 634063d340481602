"""A voter stands for leader and is lost for good, and of the epoch that it began nobody heard but observers.

The leader was out of reach for a moment only, and goes on in the epoch before. No voter's fault brings that about by chance in a seed of a
thousand: whoever stood comes back, and tells.
"""

from ottla.quorum.raft.roles.candidate import Candidate
from ottla.testing.raft.cluster import Node, RaftCluster
from ottla.testing.raft.faults import FaultEvent, FaultKind

STANDS_MS = 1_000
HEARD_MS = 500


def lose_candidate(cluster: RaftCluster) -> None:
    """Where somebody leads; else any voter is lost."""
    leader = cluster.leader()
    if leader is not None:
        cluster.reset_streams(leader)  # who hears of that does not wait for a timeout
        _cut_off(cluster, leader)
        cluster.run_until(lambda: _candidate(cluster) is not None, STANDS_MS)
    lost = _candidate(cluster) or cluster.nodes[cluster.rng.choice(cluster.static.ids())]
    _cut_off(cluster, lost)
    cluster.run_until(lambda: _is_heard_of(cluster, lost), HEARD_MS)
    cluster.lost = lost.id
    cluster.stop(lost, silently=True)


def _cut_off(cluster: RaftCluster, node: Node) -> None:
    """From the other voters."""
    for other in cluster.static.ids():
        if other != node.id:
            cluster.network.cut(FaultEvent(0, FaultKind.CUT, node.id, other))
            cluster.network.cut(FaultEvent(0, FaultKind.CUT, other, node.id))


def _candidate(cluster: RaftCluster) -> Node | None:
    nodes = (cluster.nodes[voter] for voter in cluster.static.ids())
    return next((each for each in nodes if each.replica and isinstance(each.replica.core.state.role, Candidate)), None)


def _is_heard_of(cluster: RaftCluster, node: Node) -> bool:
    observers = [each.replica for each in cluster.nodes.values() if each.replica and each.id not in cluster.controllers]
    return node.replica is None or any(each.core.state.epoch >= node.replica.core.state.epoch for each in observers)
