"""Whom an observer fetches from. Committed records are the same everywhere, so any voter in touch with the leader will do."""

from ottla.quorum.raft import rules
from ottla.quorum.raft.messages import FetchRequest
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.roles.unattached import Unattached
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.voters import ReplicaKey, Voter

FIRST_BOOTSTRAP_ID = -2  # and downwards, as in Kafka: no node has such an id


def choose_source(state: RaftState) -> Voter | None:
    """A plain broker stays with one follower, drawn at random among those on its own host or else among all, until that
    fails; it asks the leader only while no follower serves, so that the leader's cost does not grow with the brokers.
    A controller that may yet vote asks the leader. Without a leader, or when it fails, any voter tells who leads now."""
    role = state.role
    if isinstance(role, Follower):
        leader = Voter(ReplicaKey(role.leader_id), role.endpoint)
        if not state.settings.fetch_from_any_voter:
            return leader if state.may_send(role.leader_id, FetchRequest) else _draw(state)
        known = {voter.key.id: voter for voter in (*_candidates(state), *_bootstrap(state))}
        if role.source not in known or not _may_stay(state, role, role.source):
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


def _may_stay(state: RaftState, role: Follower, source: int) -> bool:
    """Where it fetched before; from the leader only in need."""
    followers = (voter.key.id for voter in _candidates(state) if voter.key.id != role.leader_id)
    return _usable(state, source) and (source != role.leader_id or not any(_usable(state, each) for each in followers))


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


def _usable(state: RaftState, voter_id: int) -> bool:
    return state.may_send(voter_id, FetchRequest)


def _draw(state: RaftState) -> Voter | None:
    usable = [voter for voter in (*_candidates(state), *_bootstrap(state)) if _usable(state, voter.key.id)]
    followers = [voter for voter in usable if voter.key.id != state.known_leader_id] or usable
    near = [voter for voter in followers if voter.endpoint.host == state.endpoint.host] or followers
    return near[state.random_between(0, len(near) - 1)] if near else None
