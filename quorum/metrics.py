"""The metrics of a node's part in the quorum (KIP-595, KIP-630, KIP-853; docs/metrics.md)."""

from typing import NamedTuple

from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.meters import QuorumMeters
from ottla.quorum.raft.roles.candidate import Candidate
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.serving import living_observers
from ottla.quorum.raft.state import RaftState
from ottla.quorum.snapshots.files import SnapshotFiles
from ottla.runtime.metrics import Labels, Metric, counter, gauge

NOBODY = -1


class QuorumObservation(NamedTuple):
    """The node's state, to be read in this turn of the loop. ``now_ms`` on the core's clock, ``wall_ms`` the same moment."""

    state: RaftState
    snapshots: SnapshotFiles | None
    meters: QuorumMeters
    now_ms: int
    wall_ms: int


def current_state(state: RaftState) -> str:
    """The node's state in KIP-595's words; who is no voter is an observer, whatever its role."""
    return type(state.role).__name__.lower() if state.is_voter else "observer"


def _vote(state: RaftState) -> int:
    role = state.role
    if isinstance(role, Leader | Candidate):
        return state.key.id
    return role.voted.id if role.voted is not None else NOBODY


def _observers(seen: QuorumObservation) -> int | None:
    role = seen.state.role
    return len(living_observers(seen.state, role, seen.now_ms)) if isinstance(role, Leader) else None


def _lags(seen: QuorumObservation) -> dict[Labels, float] | None:
    role, end = seen.state.role, seen.state.log.end
    if not isinstance(role, Leader):
        return None
    return {(str(voter),): end - max(progress.end_offset, 0) for voter, progress in role.voters.items()}


def _snapshot_bytes(seen: QuorumObservation) -> int | None:
    latest = seen.snapshots.latest if seen.snapshots is not None else None
    description = seen.snapshots.describe(latest) if seen.snapshots is not None and latest is not None else None
    return description.size if description is not None else None


def _snapshot_age(seen: QuorumObservation) -> int | None:
    latest = seen.snapshots.latest if seen.snapshots is not None else None
    return seen.wall_ms - seen.snapshots.made_ms(latest) if seen.snapshots is not None and latest is not None else None


METRICS: tuple[Metric[QuorumObservation], ...] = (
    gauge(
        "kafka_server_raftmetrics_current_state",
        "1, with the node's role as label: leader, candidate, prospective, follower, unattached, resigned, observer.",
        lambda q: {(current_state(q.state),): 1},
        "current_state",
    ),
    gauge(
        "kafka_server_raftmetrics_current_leader",
        "Node id of the active controller, -1 if unknown. Should not stay -1.",
        lambda q: NOBODY if q.state.known_leader_id is None else q.state.known_leader_id,
    ),
    gauge("kafka_server_raftmetrics_current_epoch", "Epoch; each election raises it.", lambda q: q.state.epoch),
    gauge(
        "kafka_server_raftmetrics_current_vote",
        "Node id that was voted for in this epoch, -1 if nobody.",
        lambda q: _vote(q.state),
    ),
    gauge("kafka_server_raftmetrics_high_watermark", "End of what is committed.", lambda q: q.state.high_watermark),
    gauge("kafka_server_raftmetrics_log_end_offset", "End of the metadata log here.", lambda q: q.state.log.end),
    gauge("kafka_server_raftmetrics_log_end_epoch", "Epoch of its last record.", lambda q: q.state.log.last_epoch),
    gauge("kafka_server_raftmetrics_number_of_voters", "Voters, as known here.", lambda q: len(q.state.voters.latest)),
    gauge(
        "kafka_server_raftmetrics_number_of_observers",
        "Observers that fetch. From the leader only; those that fetch from other voters are theirs.",
        _observers,
    ),
    gauge(
        "kafka_server_raftmetrics_uncommitted_voter_change",
        "1 while a change of the voters is under way. From the leader only.",
        lambda q: q.state.role.change is not None if isinstance(q.state.role, Leader) else None,
    ),
    gauge(
        "kafka_server_raftmetrics_election_latency_avg",
        "Milliseconds from this node's wish to lead to a known leader, over the last minute.",
        lambda q: q.meters.election_times.average(q.now_ms),
    ),
    gauge(
        "kafka_server_raftmetrics_election_latency_max",
        "The longest of them.",
        lambda q: q.meters.election_times.maximum(q.now_ms),
    ),
    gauge(
        "kafka_server_raftmetrics_commit_latency_avg",
        "Milliseconds from an append to its commit, over the last minute. From the leader only.",
        lambda q: q.meters.commit_times.average(q.now_ms),
    ),
    gauge(
        "kafka_server_raftmetrics_commit_latency_max",
        "The longest of them.",
        lambda q: q.meters.commit_times.maximum(q.now_ms),
    ),
    counter(
        "kafka_server_raftmetrics_append_records_total",
        "Records appended as leader (Kafka: append-records-rate).",
        lambda q: q.meters.appended_records,
    ),
    counter(
        "kafka_server_raftmetrics_fetch_records_total",
        "Records fetched from others (Kafka: fetch-records-rate).",
        lambda q: q.meters.fetched_records,
    ),
    counter(
        "ottla_quorum_campaigns_total",
        "Times that this node wanted to lead: many mean that it does not hear a leader that the others hear.",
        lambda q: q.meters.elections,
    ),
    gauge(
        "ottla_quorum_voter_lag_records",
        "Records of the metadata log that each other voter does not have yet. From the leader only.",
        _lags,
        "voter",
    ),
    gauge(
        "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes", "Bytes of the latest snapshot.", _snapshot_bytes
    ),
    gauge(
        "kafka_server_snapshotemitter_latestsnapshotgeneratedagems",
        "Milliseconds since the latest snapshot.",
        _snapshot_age,
    ),
)


class AppliedMetadata(NamedTuple):
    """How far a node's image is. ``high_watermark``: the end of what it knows to be committed."""

    loader: MetadataLoader
    high_watermark: int
    wall_ms: int

    @property
    def lag_ms(self) -> int:
        """Kafka counts since the last record, which in a quiet cluster only grows; here it is 0 when nothing waits to be applied."""
        image = self.loader.image
        waits = image.offset + 1 < self.high_watermark and self.loader.applied_ms > 0
        return max(0, self.wall_ms - self.loader.applied_ms) if waits else 0


BROKER_METRICS: tuple[Metric[AppliedMetadata], ...] = (
    gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        "Offset of the last metadata record that this broker acts on.",
        lambda m: m.loader.image.offset,
    ),
    gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_lag_ms",
        "Age of that record while newer ones are committed and not applied; 0 when there are none.",
        lambda m: m.lag_ms,
    ),
    counter(
        "kafka_server_broker_metadata_metrics_metadata_apply_error_count_total",
        "Changes of the metadata that a part of this broker failed to take in. Should be 0: restart the broker.",
        lambda m: m.loader.failures,
    ),
)
