"""When faults end, the quorum heals by itself: what that means, and how long it may take."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.quorum.raft.roles.leader import Leader
from ottla.testing.raft.cluster import RaftCluster
from ottla.testing.raft.invariants import InvariantViolation

APPEND_EVERY_US = 50_000


class Recovery(NamedTuple):
    """Milliseconds from the end of the faults."""

    leader_ms: float
    promises_ms: float
    everyone_ms: float


def check_liveness(cluster: RaftCluster) -> Recovery:
    """Call it when nothing fails any more. Raises InvariantViolation unless

    - within three election timeouts somebody leads who has committed a record of its own epoch; where a disk was lost, or a node for good,
      a check-quorum interval later: nobody may be there to spare, and one message that was lost before costs the leader its office;
    - within a check-quorum interval more, every command that was given before the faults ended has ended;
    - within a fetch timeout more, every node follows that leader and has applied all that is committed.
    """
    settings, healed_us = cluster.settings, cluster.now_us
    leader_ms = 3 * settings.election_timeout_ms
    if cluster.wiped_at_us >= 0 or cluster.lost is not None:
        leader_ms += settings.fetch_timeout_ms * 3 // 2
    promises_ms = leader_ms + settings.fetch_timeout_ms * 3 // 2
    everyone_ms = promises_ms + settings.fetch_timeout_ms
    cluster.keep_appending(APPEND_EVERY_US, healed_us // 1000 + leader_ms)
    return Recovery(
        _require(cluster, healed_us, lambda: _is_led(cluster), leader_ms, "a leader that commits"),
        _require(
            cluster, healed_us, lambda: not cluster.promises.open(healed_us), promises_ms, "an end of every command"
        ),
        _require(cluster, healed_us, lambda: _all_follow(cluster), everyone_ms, "everyone up to date"),
    )


def _require(cluster: RaftCluster, since_us: int, condition: Callable[[], bool], limit_ms: int, what: str) -> float:
    left_ms = max(0, limit_ms - (cluster.now_us - since_us) // 1000)
    if not cluster.run_until(condition, left_ms):
        waiting = cluster.promises.open(since_us)[:3]
        raise InvariantViolation("liveness", f"not {what} within {limit_ms} ms of fair weather; open: {waiting}")
    return (cluster.now_us - since_us) / 1000


def _is_led(cluster: RaftCluster) -> bool:
    leader = cluster.leader()
    if leader is None or leader.replica is None:
        return False
    role = leader.replica.core.state.role
    return isinstance(role, Leader) and role.high_watermark_known


def _all_follow(cluster: RaftCluster) -> bool:
    """All that is committed is applied by all, under one leader."""
    leader, total = cluster.leader(), len(cluster.invariants.committed)
    if leader is None or leader.replica is None:
        return False
    epoch = leader.replica.core.state.epoch
    return all(
        node.replica is not None
        and node.replica.core.state.high_watermark == total
        and node.replica.core.state.epoch == epoch
        and node.replica.core.state.known_leader_id == leader.id
        for node in cluster.left()
    )
