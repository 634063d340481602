"""How the quorum stands, for people and tools (kraft.md 1.5, DescribeQuorum)."""

from collections.abc import Iterable

from ottla.proto import quorum_pb2 as pb
from ottla.quorum.listener import QuorumDescription, QuorumMembers, ReplicaDescription
from ottla.quorum.messages_proto import key_to_proto
from ottla.quorum.raft.roles.leader import Leader, Progress
from ottla.quorum.raft.serving import living_observers
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.voters import STATIC_VOTERS, VOTERS_IN_LOG, ReplicaKey
from ottla.runtime.errors import ErrorCode

NOBODY = ReplicaKey(-1)


def describe_quorum(state: RaftState, now_ms: int, wall_ms: int) -> QuorumDescription:
    """``now_ms`` on the core's clock, ``wall_ms`` the same moment since 1970."""
    role, voters = state.role, state.voters.latest
    shift = wall_ms - now_ms
    if not isinstance(role, Leader):
        known = [
            ReplicaDescription(voter.key.id, voter.key.directory_id, voter.endpoint, -1, -1, -1)
            for voter in voters.voters
        ]
        return QuorumDescription(state.known_leader_id, state.epoch, state.high_watermark, known, [])
    own = ReplicaDescription(state.key.id, state.key.directory_id, state.endpoint, state.log.end, wall_ms, wall_ms)
    members = [
        own if voter.key.id == state.key.id else _replica(role.voters[voter.key.id], state, shift)
        for voter in voters.voters
    ]
    observers = [_replica(progress, state, shift) for progress in living_observers(state, role, now_ms).values()]
    return QuorumDescription(state.known_leader_id, state.epoch, state.high_watermark, members, observers)


def quorum_members(state: RaftState, now_ms: int, within_ms: int) -> QuorumMembers:
    """``within_ms``: how long ago "lately" may be."""
    role, voters = state.role, state.voters
    replicas = (*role.voters.values(), *role.observers.values()) if isinstance(role, Leader) else ()
    heard = [each.key.id for each in replicas if each.last_fetch_ms >= 0 and now_ms - each.last_fetch_ms < within_ms]
    is_committed = voters.kraft_version == voters.kraft_version_at(state.high_watermark)
    present = frozenset((state.key.id, *heard))
    return QuorumMembers(voters.kraft_version, voters.latest.ids(), present, is_committed)


def _replica(progress: Progress, state: RaftState, shift: int) -> ReplicaDescription:
    fetched = progress.last_fetch_ms + shift if progress.last_fetch_ms >= 0 else -1
    caught_up = progress.last_caught_up_ms + shift if progress.last_caught_up_ms >= 0 else -1
    endpoint = state.voters.latest.endpoint(progress.key.id)
    return ReplicaDescription(
        progress.key.id, progress.key.directory_id, endpoint, progress.end_offset, fetched, caught_up
    )


def description_to_proto(
    description: QuorumDescription, is_leader: bool, answerer: ReplicaKey = NOBODY, kraft_version: int = STATIC_VOTERS
) -> pb.QuorumResponse:
    """A follower answers with what it knows and says that it is not the leader."""
    error = ErrorCode.NONE if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
    message = pb.QuorumResponse(error_code=int(error), epoch=description.epoch)
    if description.leader_id is not None:
        message.leader_id = description.leader_id
    message.describe_quorum.high_watermark = description.high_watermark
    message.describe_quorum.answerer.CopyFrom(key_to_proto(answerer))
    message.describe_quorum.kraft_version = kraft_version
    message.describe_quorum.answerer_kraft_version_max = VOTERS_IN_LOG
    message.describe_quorum.voters.extend(_replicas_to_proto(description.voters))
    message.describe_quorum.observers.extend(_replicas_to_proto(description.observers))
    return message


def _replicas_to_proto(replicas: Iterable[ReplicaDescription]) -> list[pb.ReplicaState]:
    return [
        pb.ReplicaState(
            key=pb.ReplicaKey(id=replica.id, directory_id=replica.directory_id or b""),
            endpoint=pb.Endpoint(host=replica.endpoint.host, port=replica.endpoint.port) if replica.endpoint else None,
            log_end_offset=replica.log_end_offset,
            last_fetch_ms=replica.last_fetch_ms,
            last_caught_up_ms=replica.last_caught_up_ms,
        )
        for replica in replicas
    ]
