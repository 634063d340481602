"""Snapshots: who is too far behind for the log fetches a file instead (KIP-630; kraft.md 1.10)."""

from ottla.quorum.raft import commitment, elections, fetching, rules, serving, voter_tracking
from ottla.quorum.raft.events import RequestReceived, ResponseReceived, SnapshotInstalled, SnapshotTaken
from ottla.quorum.raft.instructions import InstallSnapshot, ReadSnapshotAndRespond, StoreSnapshotChunk
from ottla.quorum.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.quorum.raft.roles.follower import Download, Follower
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.timers import Timer
from ottla.runtime.errors import ErrorCode


def handle_fetch_snapshot(state: RaftState, event: RequestReceived) -> None:
    """Reading a snapshot takes long, and shows that the reader hears the leader."""
    request = event.request
    assert isinstance(request, FetchSnapshotRequest)
    error = serving.leadership_refusal(state, request.epoch, request.sender)
    if error is not ErrorCode.NONE:
        serving.give_way(state, error, request.epoch)
        state.respond(event.token, FetchSnapshotResponse(**state.response_fields(error)))
        return
    role = state.role
    # The leader's own key, which a copy of its disk has, is none of those it counts.
    if (
        isinstance(role, Leader)
        and request.sender.id in role.voters
        and rules.is_voter(state.voters.latest, request.sender)
    ):
        serving.note_contact(state, role, request.sender.id)
    fields = {"snapshot": request.snapshot, "position": request.position, **state.response_fields()}
    max_bytes = min(request.max_bytes, state.settings.snapshot_max_bytes)
    state.emit(ReadSnapshotAndRespond(event.token, FetchSnapshotResponse(**fields), max_bytes))


def wanted_snapshot(state: RaftState) -> None:
    """Asks for a snapshot, one piece at a time, from where the last one ended, also after the connection broke."""
    role = state.role
    if not isinstance(role, Follower) or role.download is None or role.download.installing:
        return
    download = role.download
    if not state.may_send(download.source, FetchSnapshotRequest):
        return
    request = FetchSnapshotRequest(
        cluster_id=state.settings.cluster_id,
        epoch=role.epoch,
        sender=state.key,
        snapshot=download.snapshot,
        position=download.position,
        max_bytes=state.settings.snapshot_max_bytes,
    )
    state.send(download.source, download.endpoint, request)


def handle_fetch_snapshot_response(state: RaftState, event: ResponseReceived) -> None:
    """A snapshot that is gone, or is another than before, is begun anew."""
    role, response = state.role, event.response
    assert isinstance(response, FetchSnapshotResponse)
    if not isinstance(role, Follower) or role.download is None or role.download.installing:
        return
    if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        role.download = None  # the next fetch says what there is now
    elif response.error is ErrorCode.NONE:
        _note_contact(state, role, event.peer)
        _take(state, role.download, response)
    else:
        note_failure(state)


def note_failure(state: RaftState) -> None:
    """No answer, or one without a piece."""
    role = state.role
    if not isinstance(role, Follower) or role.download is None:
        return
    role.download.failures += 1
    if not rules.may_ask_again(role.download.failures, state.is_voter):
        role.download = None  # and fetch from another, who says where to go on


def _note_contact(state: RaftState, role: Follower, peer: int) -> None:
    if peer == role.leader_id:
        fetching.note_contact(state, role)


def _take(state: RaftState, download: Download, response: FetchSnapshotResponse) -> None:
    if not rules.piece_continues(download.position, download.checksum, response):
        download.position, download.checksum = 0, None
        _note_nothing(state, download)
        return
    state.emit(StoreSnapshotChunk(download.snapshot, download.position, response.data))
    download.checksum = response.checksum
    download.position += len(response.data)
    if rules.snapshot_is_whole(download.position, response):
        download.installing = True
        state.emit(InstallSnapshot(download.snapshot, response.size, response.checksum, response.voters, response.mark))
    elif response.data:
        download.failures = 0
    else:
        _note_nothing(state, download)


def _note_nothing(state: RaftState, download: Download) -> None:
    """An answer that brought the download no further: of another file, as after a change of leaders, or of one that was cut short. The
    second time in a row nobody's disk is read for it at once."""
    if download.failures:
        state.back_off(download.source)
    note_failure(state)


def handle_installed(state: RaftState, event: SnapshotInstalled) -> None:
    """The log is empty now and goes on after the snapshot; all below is committed."""
    role = state.role
    if isinstance(role, Follower) and role.download is not None:
        if event.snapshot is None:
            _wait_longer(state, role, role.download.source)
        role.download = None
    if event.snapshot is None:
        return
    state.log.restart_at(event.snapshot, event.mark)
    state.voters.replace(event.snapshot.offset, event.voters)
    elections.leave_campaign(state)
    commitment.raise_high_watermark(state, event.snapshot.offset)
    voter_tracking.voters_changed(state)


def _wait_longer(state: RaftState, role: Follower, source: int) -> None:
    """A snapshot that rotted where it lies arrives damaged every time, until there is a newer one: to fetch it again and again as
    fast as that goes would cost both a disk and a network. Less than the leader may be silent."""
    role.damaged_downloads += 1
    state.back_off(source)
    pause_ms = state.settings.retry_backoff_ms << min(role.damaged_downloads, 16)
    state.arm(Timer.RETRY, min(pause_ms, state.settings.fetch_timeout_ms // 2))


def handle_taken(state: RaftState, event: SnapshotTaken) -> None:
    """Whoever asks for what the log no longer holds is sent to the snapshot."""
    assert event.log_start <= event.snapshot.offset <= state.high_watermark, "snapshots hold committed records"
    state.log.snapshot = event.snapshot
    state.log.advance_start(event.log_start)
    state.voters.forget_below(event.log_start)
