"""Whom an observer fetches from. Committed records are the same everywhere, so any voter in touch with the leader will do."""

from enum import IntEnum

from ottla.quorum.raft import rules
from ottla.quorum.raft.events import RackMatesLearned
from ottla.quorum.raft.messages import FetchRequest, FetchResponse, Request, Response
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.roles.unattached import Unattached
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter
from ottla.runtime.errors import ErrorCode

FIRST_BOOTSTRAP_ID = -2  # and downwards, as in Kafka: no node has such an id


class Distance(IntEnum):
    """How near a source is. A rack is where what fails together stands, and mostly one switch (Kafka's broker.rack, KIP-36
    and KIP-392)."""

    SAME_HOST = 0
    SAME_RACK = 1
    ELSEWHERE = 2


class Standing(IntEnum):
    """Whether a source is a follower, or the leader, who serves observers while no follower does, so that its cost does not
    grow with the brokers."""

    FOLLOWER = 0
    LEADER = 1
    UNKNOWN = 2


BEST = (Standing.FOLLOWER, Distance.SAME_HOST)


def choose_source(state: RaftState) -> Voter | None:
    """A plain broker stays with one follower, the nearest that serves, drawn at random among equals; it comes back to a nearer
    one, and leaves the leader, as soon as there is hope. A controller that may yet vote asks the leader. Without a leader, or
    when it fails, any voter tells who leads now."""
    role = state.role
    if isinstance(role, Follower):
        leader = Voter(ReplicaKey(role.leader_id), role.endpoint)
        if not state.settings.fetch_from_any_voter:
            return leader if state.may_send(role.leader_id, FetchRequest) else _draw(state)
        known = {voter.key.id: voter for voter in (*_candidates(state), *_bootstrap(state))}
        if role.source not in known or not _may_stay(state, known[role.source]):
            drawn = _draw(state)
            role.source = None if drawn is None else drawn.key.id
        return None if role.source is None else known[role.source]
    return _draw(state) if isinstance(role, Unattached | Resigned) else None


def choose_informant(state: RaftState) -> Voter | None:
    """Whom a voter without a leader, or one that cannot reach the leader it was told of, asks besides those it campaigns
    with: its voter set may be long out of date."""
    role = state.role
    lost = isinstance(role, Follower) and rules.may_look_elsewhere(
        role.has_fetched, role.leader_id in state.backing_off
    )
    return _draw(state) if state.settings.bootstrap and (lost or isinstance(role, Unattached)) else None


def endpoint_of(state: RaftState, peer: int) -> Endpoint | None:
    """Where a source is found: the snapshots it tells of are its own, and no other node need have them."""
    known = (*_candidates(state), *_bootstrap(state))
    return next((source.endpoint for source in known if source.key.id == peer), None)


def note_outcome(state: RaftState, peer: int, request: Request, response: Response | None) -> None:
    """A source that fails is avoided, longer each time; it is asked all the same while there is no other. So is a follower that
    could not say in a whole wait whether this log is its own: it may have to be cut, which the leader knows."""
    if not state.settings.fetch_from_any_voter or not isinstance(request, FetchRequest):
        return
    if isinstance(response, FetchResponse) and _serves(response, peer == state.known_leader_id):
        state.unreliable.pop(peer, None)
    else:
        state.unreliable[peer] = state.longer_pause(state.unreliable.get(peer), state.settings.source_pause_max_ms)
        state.back_off(peer)


def _serves(response: FetchResponse, leads: bool) -> bool:
    return response.error is ErrorCode.NONE and (leads or rules.was_judged(response))


def handle_rack_mates(state: RaftState, event: RackMatesLearned) -> None:
    state.rack_mates = event.nodes


def _may_stay(state: RaftState, source: Voter) -> bool:
    """Whether it may go on where it fetched before: not if somebody better may be asked."""
    if not _is_usable(state, source):
        return False
    rank = _rank(state, source)
    if rank == BEST:
        return True
    return all(rank <= _rank(state, other) for other in _candidates(state) if _is_hopeful(state, other))


def _rank(state: RaftState, voter: Voter) -> tuple[Standing, Distance]:
    """How good a source is: low is good. Who does not keep count of failures (`note_outcome`) has to try the bootstrap
    servers with the others."""
    if voter.key.id < 0 and state.settings.fetch_from_any_voter:
        return Standing.UNKNOWN, Distance.ELSEWHERE
    standing = Standing.LEADER if voter.key.id == state.known_leader_id else Standing.FOLLOWER
    host = voter.endpoint.host
    if host == state.endpoint.host or host in state.settings.hosts:
        return standing, Distance.SAME_HOST
    return standing, Distance.SAME_RACK if voter.key.id in state.rack_mates else Distance.ELSEWHERE


def _candidates(state: RaftState) -> tuple[Voter, ...]:
    """The voters as this replica knows them, which may be long ago; and the leader, who may be another, or elsewhere now."""
    role, voters = state.role, state.voters.latest
    if isinstance(role, Follower) and voters.endpoint(role.leader_id) != role.endpoint:
        return (*voters.without(role.leader_id).others(state.key.id), Voter(ReplicaKey(role.leader_id), role.endpoint))
    return voters.others(state.key.id)


def _bootstrap(state: RaftState) -> tuple[Voter, ...]:
    """Known by where they listen only; who they are does not matter, for any node tells who leads."""
    known = [state.endpoint, *(voter.endpoint for voter in _candidates(state))]
    servers = [endpoint for endpoint in state.settings.bootstrap if endpoint not in known]
    return tuple(Voter(ReplicaKey(FIRST_BOOTSTRAP_ID - index), endpoint) for index, endpoint in enumerate(servers))


def _is_usable(state: RaftState, voter: Voter) -> bool:
    return state.may_send(voter.key.id, FetchRequest)


def _is_hopeful(state: RaftState, voter: Voter) -> bool:
    avoided = state.unreliable.get(voter.key.id)
    return _is_usable(state, voter) and (avoided is None or avoided.until_ms <= state.now_ms)


def _draw(state: RaftState) -> Voter | None:
    usable = [voter for voter in (*_candidates(state), *_bootstrap(state)) if _is_usable(state, voter)]
    hopeful = [voter for voter in usable if _is_hopeful(state, voter)] or usable
    if not hopeful:
        return None
    best = min(_rank(state, voter) for voter in hopeful)
    drawn = [voter for voter in hopeful if _rank(state, voter) == best]
    return drawn[state.random_between(0, len(drawn) - 1)]
