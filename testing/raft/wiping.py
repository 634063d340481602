"""Which disks may be lost, and when: the promise that docs/quorum.md makes, and no more.

A voter whose directory id stands in the log may be lost for good, as long as most voters of every set that may be in force
keep their disks. A static voter is known by its node id alone and votes again without a memory; so its disk is replaced only
while every voter holds all there is and follows one leader.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.quorum.raft.majority import majority
from ottla.quorum.raft.messages import AddVoterRequest, RemoveVoterRequest
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.testing.raft.memory import Storage

if TYPE_CHECKING:
    from ottla.testing.raft.cluster import Node, RaftCluster

SETTLED_US = 1_000_000
"""After a loss, messages of the lost replica may be under way for so long; a second one waits."""
RETRY_US = 5_000
TRIES = 200


def wipe(cluster: "RaftCluster", node: "Node", away_us: int, tries: int = TRIES) -> None:
    """As soon as that is within the promise, if it soon is."""
    settled = cluster.wiped_at_us < 0 or cluster.wiped_at_us + SETTLED_US < cluster.now_us
    if cluster.is_fair:
        return
    if settled and _may_wipe(cluster, node):
        known = not cluster.formatted and _is_static(cluster)
        cluster.wipe(node, cluster.static if known else VoterSet())  # else formatted with --no-initial-controllers
        cluster.at(away_us, cluster.start, node)
    elif tries > 1:
        cluster.at(RETRY_US, wipe, cluster, node, away_us, tries - 1)


def _may_wipe(cluster: "RaftCluster", node: "Node") -> bool:
    if _is_changing(cluster):
        return False
    if _is_known_by_directory(cluster):
        # The first node never moves, so it is whom the others' settings name; itself it could not ask.
        return node.id != 1 and can_do_without(cluster, node)
    return _all_hold_everything(cluster) and _is_static(cluster)


def may_remove(cluster: "RaftCluster", leader: "Node", node: "Node") -> bool:
    """An administrator who knows of a lost disk does not remove a voter whom its set needs. (The leader sees it when
    the lost one has not fetched for a fetch timeout.) One that is paused would take the request at another time."""
    if cluster.wiped_at_us < 0 or leader.replica is None:
        return True
    role, voters = leader.replica.core.state.role, leader.replica.core.state.voters.latest.without(node.id)
    if leader.held is not None or not isinstance(role, Leader):
        return False
    told = {
        node_id: progress.key for node_id, progress in role.voters.items()
    }  # of a static voter nothing else is known
    rest = VoterSet.of(Voter(told.get(voter.key.id, voter.key), voter.endpoint) for voter in voters.voters)
    return not rest.voters or _has_majority(cluster, rest, lost=None)


def _is_changing(cluster: "RaftCluster") -> bool:
    """A change that is asked for, or whose record is not committed, may yet be made with the one who is lost."""
    return any(
        isinstance(waiting.request, AddVoterRequest | RemoveVoterRequest) for waiting in cluster.promises.requests()
    )


def _is_known_by_directory(cluster: "RaftCluster") -> bool:
    """Every controller was formatted to know which disks vote, or has it in its log for good: none falls back on node ids."""
    return cluster.formatted or all(
        _knows_directories(cluster, cluster.nodes[node].disk) for node in cluster.controllers
    )


def _knows_directories(cluster: "RaftCluster", disk: Storage) -> bool:
    if not disk.static.voters:
        return True
    known = min(disk.durable_end, len(cluster.invariants.committed))
    return any(offset < known for offset, _ in disk.voter_history().entries)


def _is_static(cluster: "RaftCluster") -> bool:
    return all(not cluster.nodes[node].disk.voter_history().entries for node in cluster.controllers)


def can_do_without(cluster: "RaftCluster", node: "Node") -> bool:
    """Whether most voters but for ``node`` have their disks and are where the others look for them: in the newest set of every log, and the one before, which is in force again if the newest is cut off; and in those that
    the node may yet be let into by a request of its own that is under way."""
    return all(_has_majority(cluster, voters, lost=node.key) for voters in _sets_with(cluster, node) if voters.voters)


def _sets_with(cluster: "RaftCluster", node: "Node") -> Iterator[VoterSet]:
    for each in cluster.controllers:
        history = cluster.nodes[each].disk.voter_history()
        for voters in (history.latest, history.previous):
            yield voters
            if cluster.settings.auto_join and voters.voters:
                yield voters.with_voter(Voter(node.key, node.endpoint))


def _has_majority(cluster: "RaftCluster", voters: VoterSet, lost: ReplicaKey | None) -> bool:
    return sum(_is_there(cluster, voter) and voter.key != lost for voter in voters.voters) >= majority(len(voters))


def _is_there(cluster: "RaftCluster", voter: Voter) -> bool:
    node = cluster.nodes[voter.key.id]
    return voter.key.matches(node.key) and voter.endpoint == node.endpoint


def _all_hold_everything(cluster: "RaftCluster") -> bool:
    """Then another's vote without memory elects nobody who lacks anything, for nobody lacks anything."""
    leader = cluster.leader()
    if leader is None or leader.replica is None or len(cluster.static) < 2:
        return False
    log, epoch = leader.replica.core.state.log, leader.replica.core.state.epoch
    voters = [cluster.nodes[voter] for voter in cluster.static.ids()]
    return all(
        node.replica is not None
        and node.held is None
        and node.disk.durable_end == log.end
        and node.replica.core.state.log.last_epoch == log.last_epoch
        and isinstance(node.replica.core.state.role, Follower | Leader)
        and node.replica.core.state.epoch == epoch
        for node in voters
    )
