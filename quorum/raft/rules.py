"""The rules of the protocol, one small function each, named after what they protect.

Everything else in this package moves data around these decisions. The planted bugs of tests/model replace exactly these
functions, one at a time, and each must be caught.
Sources: Raft dissertation chapters 3, 4 and 6; KIP-595, KIP-630, KIP-853, KIP-996.
"""

from collections.abc import Sequence

from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.log_summary import LogSummary, OffsetAndEpoch
from ottla.quorum.raft.majority import VoteResult, agreed_offset, majority, vote_result
from ottla.quorum.raft.messages import BatchInfo, FetchRequest, FetchResponse, FetchSnapshotResponse, Request, Response
from ottla.quorum.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from ottla.runtime.errors import ErrorCode

SNAPSHOT_TRIES = 3

# --- epochs -----------------------------------------------------------------------------------------------------------


def next_epoch(epoch: int) -> int:
    """A candidate, and a resigned leader that gives up waiting, move to an epoch nobody was in through them."""
    return epoch + 1


def is_fenced(message_epoch: int, epoch: int) -> bool:
    """A message of an older epoch changes nothing (dissertation 3.3)."""
    return message_epoch < epoch


def must_follow_epoch(message_epoch: int, epoch: int) -> bool:
    """Whoever meets a higher epoch gives up its role (dissertation 3.3)."""
    return message_epoch > epoch


# --- elections --------------------------------------------------------------------------------------------------------


def is_up_to_date(candidate: OffsetAndEpoch, own: OffsetAndEpoch) -> bool:
    """The election restriction (dissertation 3.6.1): later epoch first, then longer log."""
    return (candidate.epoch, candidate.offset) >= (own.epoch, own.offset)


def may_vote_for(candidate: ReplicaKey, voted: ReplicaKey | None, leader_id: int | None, up_to_date: bool) -> bool:
    """One vote an epoch; asked again by the same candidate, the same answer; none once the epoch has a leader."""
    if voted is not None:
        return voted.matches(candidate)
    return leader_id is None and up_to_date


def follower_grants_pre_vote(up_to_date: bool, has_fetched: bool, leader_suspected: bool) -> bool:
    """A follower in touch with its leader lets nobody disturb it (KIP-996). Evidence that the leader is gone ends that."""
    return up_to_date and (not has_fetched or leader_suspected)


def answer_counts(voter_id: int, voters: tuple[int, ...]) -> bool:
    """Only voters elect."""
    return voter_id in voters


def election_result(voters: int, granted: int, unanswered: int) -> VoteResult:
    """A leader needs a majority of the voter set (dissertation 3.4)."""
    return vote_result(voters, granted, unanswered)


def candidate_end(log: LogSummary) -> OffsetAndEpoch:
    """What a candidate claims: its durable log only. It may crash, come back shorter in the same epoch, and still be given
    the vote it was promised for what it had."""
    return OffsetAndEpoch(log.durable_end, log.epoch_below(log.durable_end))


def voter_end(log: LogSummary) -> OffsetAndEpoch:
    """What a voter compares a candidate with."""
    return OffsetAndEpoch(log.end, log.last_epoch)


def vote_must_be_recorded(voted: ReplicaKey | None) -> bool:
    """A vote is durable before it is given, or a restart gives it twice (dissertation 3.8)."""
    return voted is None


def restored_epoch(election: ElectionState, log: LogSummary) -> ElectionState:
    """An election state older than the log (restored from a backup, say) may not be voted on."""
    return election if election.epoch >= log.last_epoch else ElectionState(log.last_epoch)


def returns_resigned(election: ElectionState, node_id: int) -> bool:
    """A leader never comes back as leader: it may have lost what it appended last (kraft.md 1.2)."""
    return election.leader_id == node_id


def returns_candidate(election: ElectionState, key: ReplicaKey) -> bool:
    """Who voted for itself goes on with that candidacy, unless another won it: the vote is given away already."""
    return election.leader_id is None and election.voted is not None and election.voted.matches(key)


# --- replication ------------------------------------------------------------------------------------------------------


def fetch_offset(log: LogSummary) -> int | None:
    """Where to fetch, or None to wait: a fetch offset is an acknowledgement, so all below it must be durable."""
    return log.end if log.durable_end == log.end else None


def needs_snapshot(log: LogSummary, offset: int, last_epoch: int) -> bool:
    """Whether the fetcher's place is no longer (or not usefully) in the log (KIP-630)."""
    if log.snapshot is None:
        return False
    if offset == 0 and log.snapshot.offset > 0:
        return True
    if offset < log.start or last_epoch < log.base_epoch:
        return True
    return offset == log.start and log.start > 0 and last_epoch != log.base_epoch


def epoch_mark(node_id: int, now_ms: int) -> int:
    """What tells an epoch from one of the same number that another leader, or this one, began in a history that was forgotten."""
    return (now_ms & 0xFF_FFFF_FFFF) << 20 | (node_id & 0xF_FFFF) | 1 << 61


def divergence(log: LogSummary, offset: int, last_epoch: int, last_mark: int = 0) -> OffsetAndEpoch | None:
    """Log matching (dissertation 3.5, KIP-595): None if the fetcher's log is a prefix of ours; else the last place where it
    might be. An epoch that somebody else began is none of ours."""
    if offset == 0:
        return None
    found = log.end_offset_for(last_epoch)
    if found.epoch == last_epoch and last_mark and log.marks.get(last_epoch, last_mark) != last_mark:
        return log.end_offset_for(last_epoch - 1)
    return None if found.epoch == last_epoch and found.offset >= offset else found


def truncation_point(log: LogSummary, diverging: OffsetAndEpoch) -> int:
    """Where a follower cuts its log, told where the leader's leaves it. It may take several rounds."""
    own = log.end_offset_for(diverging.epoch)
    return min(own.offset, diverging.offset) if own.epoch == diverging.epoch else own.offset


def records_continue(log: LogSummary, base_offset: int, epoch: int) -> bool:
    """Records are appended only where the log ends and never under an older epoch than its last."""
    return base_offset == log.end and epoch >= log.last_epoch


def batches_continue(one: BatchInfo, following: BatchInfo) -> bool:
    """As `records_continue`, within what one reply brings."""
    return one.base_offset <= one.last_offset == following.base_offset - 1 and one.epoch <= following.epoch


def lacks_snapshot(log: LogSummary, snapshot: OffsetAndEpoch) -> bool:
    """Whether a follower that is sent to a snapshot needs it: its log ends before, or has other records there. A tail of a later
    epoch that was never committed may end exactly where the leader's log begins (kraft.md 1.5)."""
    return snapshot.offset > log.end or log.epoch_below(snapshot.offset) != snapshot.epoch


def piece_continues(position: int, checksum: int | None, piece: FetchSnapshotResponse) -> bool:
    """A snapshot is put together from pieces of one and the same file, without gaps."""
    return piece.position == position and checksum in (None, piece.checksum)


def snapshot_is_whole(position: int, piece: FetchSnapshotResponse) -> bool:
    """A half-received snapshot is never used."""
    return position >= piece.size


def may_look_elsewhere(has_fetched: bool, leader_failed: bool) -> bool:
    """A voter asks others for the leader only when it never reached the one it was told of: an answer that is waited for
    keeps it from fetching."""
    return leader_failed and not has_fetched


def may_ask_again(failures: int, is_voter: bool) -> bool:
    """A download goes on where it was when the connection comes back. Voters have only the leader to ask; who has a choice does
    not wait for one that is gone."""
    return is_voter or failures < SNAPSHOT_TRIES


def answers_request(awaited: Request | None, request: Request) -> bool:
    """A late answer, to a question of an earlier role or one asked anew since, is not listened to."""
    return awaited == request


def is_voter(voters: VoterSet, key: ReplicaKey) -> bool:
    """Node id and directory: a wiped disk is another replica (KIP-853)."""
    return voters.contains(key)


# --- commitment -------------------------------------------------------------------------------------------------------


def acknowledged_by_leader(log: LogSummary) -> int:
    """The leader counts itself only up to what it has synced (unlike Kafka, where a single voter commits before)."""
    return log.durable_end


def committed_offset(end_offsets: Sequence[int]) -> int:
    """What a majority of the voters holds durably."""
    return agreed_offset(end_offsets)


def may_commit(offset: int, epoch_start: int) -> bool:
    """Counting replicas commits only with a record of the leader's own epoch among them (dissertation 3.6.2)."""
    return offset > epoch_start


def raised_high_watermark(current: int, offset: int) -> int:
    """It never goes back (a grown voter set can make the count lower: that is ignored)."""
    return max(current, offset)


def follower_high_watermark(leaders: int, log_end: int) -> int:
    """A follower knows as committed what it has of what the leader says is."""
    return min(leaders, log_end)


def observer_limit(high_watermark: int) -> int:
    """Observers are given committed records only, by whomever: they never have to take one back."""
    return high_watermark


def may_judge(leads: bool, offset: int, high_watermark: int) -> bool:
    """A follower's log is certain only below its high watermark: further on it cannot say whose log diverges. A voter that was
    removed, or a leader that removed itself, asks followers with records that may never be committed."""
    return leads or offset <= high_watermark


def told_high_watermark(high_watermark: int, judged: bool) -> int:
    """Nothing (-1) is said to be committed of a log that may diverge."""
    return high_watermark if judged else -1


def was_judged(response: FetchResponse) -> bool:
    """Whether a follower that answered an observer so knows whose log diverges (see `told_high_watermark`)."""
    return response.high_watermark >= 0 or response.diverging is not None or response.snapshot is not None


def may_serve_observers(has_fetched: bool, leader_suspected: bool) -> bool:
    """Only a follower in touch with its leader: another would keep its observers in the past without knowing."""
    return has_fetched and not leader_suspected


# --- leadership -------------------------------------------------------------------------------------------------------


def may_append(epoch: int, leading: int | None) -> bool:
    """A batch made in one epoch is not appended in another (kraft.md 1.8)."""
    return leading == epoch


def has_quorum(heard_from: int, voters: int, leader_votes: bool) -> bool:
    """Check-quorum (dissertation 6.2): the leader and those it heard from are a majority."""
    return heard_from + (1 if leader_votes else 0) >= majority(voters)


def may_hand_over(high_watermark: int, log_end: int) -> bool:
    """A leader leaves when all it appended is committed: then somebody holds its whole log, whom nobody refuses a vote, and
    nobody who waits for a commit is left without an answer (after dissertation 3.10)."""
    return high_watermark >= log_end


def leader_is_gone(request: Request, response: Response) -> bool:
    """The one we follow says it does not lead the epoch we ask about: it crashed or resigned."""
    return (
        isinstance(request, FetchRequest)
        and response.epoch == request.epoch
        and response.error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.BROKER_NOT_AVAILABLE)
    )


# --- voter changes ----------------------------------------------------------------------------------------------------


def may_change_voters(pending: bool, high_watermark_known: bool, latest_offset: int, high_watermark: int) -> bool:
    """One change at a time, each committed before the next, and not before the leader's epoch has committed something
    (dissertation 4.1 and its published correction)."""
    return not pending and high_watermark_known and latest_offset < high_watermark


def may_join(can_vote: bool, last_caught_up_ms: int, in_touch: bool) -> bool:
    """A new voter syncs what it acknowledges, has been caught up, and fetches (KIP-853, where within the last hour is
    enough): else it would only weaken the quorum."""
    return can_vote and last_caught_up_ms >= 0 and in_touch


def is_in_touch(last_fetch_ms: int, now_ms: int, fetch_timeout_ms: int) -> bool:
    """Whether a replica lives, as far as its leader can know: followers fetch several times in a fetch timeout."""
    return last_fetch_ms >= 0 and now_ms - last_fetch_ms < fetch_timeout_ms


def is_forgotten(last_fetch_ms: int, now_ms: int, session_ms: int) -> bool:
    """Observers come and go without a word (kraft.md 1.5)."""
    return now_ms - last_fetch_ms >= session_ms


def quorum_survives(in_touch: int, voters: int) -> bool:
    """A change that could not be committed would end the quorum, for it is in force at once: most voters of the new set
    have to be there (ours; etcd's strict reconfiguration check)."""
    return in_touch >= majority(voters)


def is_twin(sender: ReplicaKey, known: ReplicaKey, known_in_touch: bool) -> bool:
    """Two replicas under one node id. A static voter set does not say which of them votes; while the one heard from lives,
    the other is refused, or acknowledgements of two disks would count as one voter's. When it is gone, its place is free:
    a disk may be replaced (ours, for KIP-853's directory ids)."""
    return known_in_touch and not known.matches(sender)


def names_voter(asked: ReplicaKey, voter: ReplicaKey) -> bool:
    """Who is to be removed has to be named by node and directory, so that nobody removes another than meant (KIP-853)."""
    return asked.id == voter.id and asked.directory_id == voter.directory_id


def must_write_voters(history: VoterHistory, voter: Voter) -> bool:
    """A new leader writes the voter set when the log has none and the directories are known (so it is no static one), and when
    the set does not say of the leader what is true now (kraft.md 1.9)."""
    known = history.latest.get(voter.key.id)
    if history.latest_offset < 0:
        return known is not None and all(each.key.directory_id is not None for each in history.latest.voters)
    return known is not None and known != voter


def must_write_kraft_version(latest_offset: int) -> bool:
    """The first voter set of a log comes with the level of kraft.version that such records need (KIP-853): who reads none of
    it stops there."""
    return latest_offset < 0


def may_campaign(is_voter: bool, was_voter: bool, removal_committed: bool) -> bool:
    """Whoever was removed still stands for election until its removal is committed: only it may have the record of it, and
    then nobody else can be elected (dissertation 4.2.2). Its own vote does not count."""
    return is_voter or (was_voter and not removal_committed)


def counting_voters(voters: VoterSet) -> tuple[int, ...]:
    """Whose acknowledgements count: the newest set's, from the moment it is appended. A leader that removed itself is not
    in it."""
    return voters.ids()


def change_is_committed(change_offset: int, high_watermark: int) -> bool:
    """A leader that removed itself leads until then, or the removal might be lost with it."""
    return high_watermark > change_offset
