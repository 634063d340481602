"""The follower's side of replication: fetch, cut what diverges, append, sync, fetch again (KIP-595; kraft.md 1.5)."""

from itertools import pairwise

from ottla.quorum.raft import commitment, observing, rules, voter_tracking
from ottla.quorum.raft.events import ResponseReceived
from ottla.quorum.raft.instructions import AppendBatches, Fault, FaultKind, Sync, TruncateTo
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, Records
from ottla.quorum.raft.roles.follower import Download, Follower
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Endpoint
from ottla.runtime.errors import ErrorCode

_FETCHES = (FetchRequest.__name__, FetchSnapshotRequest.__name__)


def wanted_fetch(state: RaftState) -> None:
    """One fetch at a time over all connections: two could bring the same records twice. Voters ask the leader: their fetches are
    acknowledgements, and their log is more than what is committed. Who takes itself for a voter and finds nobody where the
    leader was asks anyone (kraft.md 1.5): it may have been removed, and the leader have moved since."""
    role = state.role
    if _is_fetching(state) or (isinstance(role, Follower) and role.download is not None):
        return
    offset = rules.fetch_offset(state.log)
    if offset is None:
        return
    if state.is_voter and isinstance(role, Follower) and state.may_send(role.leader_id, FetchRequest):
        send_fetch(state, role.leader_id, role.endpoint, offset)
        return
    source = observing.choose_informant(state) if state.is_voter else observing.choose_source(state)
    if source is not None:
        send_fetch(state, source.key.id, source.endpoint, offset)


def _is_fetching(state: RaftState) -> bool:
    return any(kind in _FETCHES for _, kind in state.inflight)


def send_fetch(state: RaftState, peer: int, endpoint: Endpoint, offset: int) -> None:
    request = FetchRequest(
        cluster_id=state.settings.cluster_id,
        epoch=state.epoch,
        sender=state.key,
        offset=offset,
        last_epoch=state.log.last_epoch,
        high_watermark=state.high_watermark,
        max_wait_ms=min(state.settings.fetch_max_wait_ms, state.settings.fetch_timeout_ms // 2),
        max_bytes=state.settings.fetch_max_bytes,
        can_vote=state.settings.can_vote,
        last_mark=state.log.last_mark,
    )
    state.send(peer, endpoint, request)


def handle_fetch_response(state: RaftState, event: ResponseReceived) -> None:
    role, response = state.role, event.response
    assert isinstance(response, FetchResponse)
    if not isinstance(role, Follower) or response.error is not ErrorCode.NONE:
        return
    note_contact(state, role)
    if response.diverging is not None:
        _truncate(state, response.diverging)
    elif response.snapshot is not None:
        _download(state, role, event.peer, response.snapshot)
    else:
        _append(state, event.peer, response.records)
        if response.high_watermark >= 0:
            offset = rules.follower_high_watermark(response.high_watermark, state.log.end)
            commitment.raise_high_watermark(state, offset)


def _download(state: RaftState, role: Follower, peer: int, snapshot: OffsetAndEpoch) -> None:
    """A snapshot in the place of what is committed here would take it back."""
    if snapshot.offset < state.high_watermark:
        detail = f"by a snapshot at {snapshot.offset}, high watermark {state.high_watermark}"
        state.emit(Fault(FaultKind.COMMITTED_TRUNCATION, detail))
    elif rules.lacks_snapshot(state.log, snapshot):
        role.download = Download(snapshot, peer, observing.endpoint_of(state, peer) or role.endpoint)
    else:
        state.back_off(peer)


def note_contact(state: RaftState, role: Follower) -> None:
    """The leader answered, so it lives."""
    role.has_fetched = True
    role.leader_suspected = False
    state.disconnects = 0
    if state.settings.can_vote:
        state.arm(Timer.FETCH, state.settings.fetch_timeout_ms)


def _truncate(state: RaftState, diverging: OffsetAndEpoch) -> None:
    """What is committed is never cut: whoever asks for that is wrong about the past. So is who goes on in an older epoch than the
    snapshot ends in that this log begins with."""
    offset = rules.truncation_point(state.log, diverging)
    if offset < state.high_watermark or diverging.epoch < state.log.base_epoch:
        state.emit(Fault(FaultKind.COMMITTED_TRUNCATION, f"to {offset}, high watermark {state.high_watermark}"))
        return
    state.emit(TruncateTo(offset))
    state.log.truncate(offset)
    state.voters.truncate(offset)
    voter_tracking.voters_changed(state)


def _append(state: RaftState, peer: int, records: Records) -> None:
    if not records.batches:
        return
    if not _continue_log(state, records):
        state.back_off(peer)
        return
    state.emit(AppendBatches(records.data, records.batches))
    for batch in records.batches:
        state.log.append(batch.epoch, batch.base_offset, batch.last_offset + 1, batch.mark)
        if batch.voters is not None:
            state.voters.append(batch.base_offset, batch.voters)
            voter_tracking.voters_changed(state)
    if state.settings.can_vote:
        state.emit(Sync(state.log.end))
    else:
        state.log.durable_end = state.log.end  # a plain broker's fetch acknowledges nothing


def _continue_log(state: RaftState, records: Records) -> bool:
    """Each batch begins where the one before ended, in no older epoch and in none that is yet to come; a reply that is otherwise
    is dropped whole and asked for again."""
    first, last = records.batches[0], records.batches[-1]
    whole = all(rules.batches_continue(*pair) for pair in pairwise(records.batches))
    in_time = not rules.must_follow_epoch(last.epoch, state.epoch) and last.last_offset >= last.base_offset
    return whole and in_time and rules.records_continue(state.log, first.base_offset, first.epoch)


def suspect_leader(state: RaftState) -> None:
    """Evidence that the leader is gone: campaign soon, after a random moment so that two do not collide, and later with
    each vain attempt (the evidence may be wrong: PreVote finds out)."""
    role = state.role
    if not isinstance(role, Follower) or role.leader_suspected:
        return
    role.leader_suspected = True  # who is no voter (yet) may still be asked for its vote
    if not state.may_campaign:
        return
    longest = min(
        state.settings.election_backoff_max_ms, state.settings.disconnect_jitter_ms << min(state.disconnects, 8)
    )
    state.disconnects += 1
    state.arm_earlier(Timer.FETCH, state.random_between(1, longest))
