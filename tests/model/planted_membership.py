"""Planted bugs of membership, of snapshots, and of what a restart must remember."""

from ottla.quorum.raft import rules
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.voters import ReplicaKey, VoterHistory
from tests.model.planted import (
    Bug,
    exhaustive,
    exhaustive_in,
    random_walks,
    random_walks_with_snapshots,
    random_walks_with_voter_changes,
    simulator,
    simulator_out_of_step,
)


def _begin_without_epoch(log: LogSummary, snapshot: OffsetAndEpoch, _mark: int) -> None:
    log.start = log.end = log.durable_end = snapshot.offset
    log.epochs, log.snapshot = (), snapshot


MEMBERSHIP_BUGS = (
    Bug(
        "another change of voters before the last is committed",
        rules,
        "may_change_voters",
        lambda pending, known, latest_offset, high_watermark: True,
        exhaustive_in("a voter joins, one goes, a message is lost"),
        0,
        "one change of voters at a time",
    ),
    Bug(
        "a change of voters is confirmed before it is committed",
        rules,
        "change_is_committed",
        lambda change_offset, high_watermark: True,
        exhaustive_in("a voter or the leader is removed, two campaigns"),
        0,
        "acknowledged means committed",
    ),
    Bug(
        "voters stay whose record was cut off",
        VoterHistory,
        "truncate",
        lambda self, end_offset: None,
        random_walks_with_voter_changes,
        0,
        "voter sets arrive in log order|the newest voters of the log count",
    ),
    Bug(
        # A lost disk: what the old one acknowledged and what the new one has is taken together.
        "a new disk acknowledges for the lost one",
        rules,
        "is_voter",
        lambda voters, key: voters.get(key.id) is not None,
        simulator,
        38,
        "durable on a majority",
    ),
    Bug(
        "a new disk votes for the lost one",
        ReplicaKey,
        "matches",
        lambda self, other: self.id == other.id,
        simulator,
        12,
        "durable on a majority",
    ),
    Bug(
        "a removed voter asks nobody but the leader it knew",
        rules,
        "may_look_elsewhere",
        lambda has_fetched, leader_failed: False,
        simulator_out_of_step,
        836,
        "liveness",
    ),
    Bug(
        "a follower judges a log that goes on beyond its certain one",
        rules,
        "may_judge",
        lambda leads, offset, high_watermark: True,
        simulator,
        2,
        "asked to truncate committed records",
    ),
    Bug(
        "a snapshot carries voters of later records",
        VoterHistory,
        "at",
        lambda self, offset: self.latest,
        random_walks_with_snapshots,
        0,
        "the newest voters of the log count",
    ),
    Bug(
        "the voters of a received snapshot are not taken over",
        VoterHistory,
        "replace",
        lambda self, offset, voters: None,
        exhaustive_in("a voter joins by a snapshot"),
        0,
        "the newest voters of the log count",
    ),
    Bug(
        "a log that begins after a snapshot forgets the epoch below",
        LogSummary,
        "restart_at",
        _begin_without_epoch,
        random_walks_with_snapshots,
        0,
        "asked to truncate committed records",
    ),
    Bug(
        "a restart goes on with the candidacy of another",
        rules,
        "returns_candidate",
        lambda election, key: election.leader_id is None and election.voted is not None,
        random_walks,
        1,
        "election safety",
    ),
    Bug(
        "a leader does not write down that it leads",
        Leader,
        "election_state",
        lambda self: ElectionState(self.epoch),
        exhaustive,
        1,
        "one vote an epoch",
    ),
)
