"""A node of the model: its replica, its disk, what distinguishes two of its states, and what the walk needs to know of one."""

from random import Random
from typing import Any, NamedTuple

import msgspec

from ottla.quorum.raft.messages import Request, Response
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Endpoint
from ottla.testing.raft.cluster import endpoint_of
from ottla.testing.raft.memory import MemoryReplica, Storage

# What only stretches or shortens waiting has no meaning where time does not exist.
TIMING_FIELDS = frozenset(("last_fetch_ms", "last_caught_up_ms", "heard_from", "granting", "deadline_ms"))

# Whether a replica ever fetched, and ever had caught up, decides who may be added or removed. (The time is always 0.)
ALWAYS_TIMING = frozenset(("heard_from", "granting", "deadline_ms"))

EXPIRING = (Timer.ELECTION, Timer.FETCH, Timer.CHECK_QUORUM, Timer.HAND_OVER, Timer.UPDATE_VOTER)
MOVED_BY = 1000


class NoRandom(Random):
    """Every draw is the lowest: where time does not exist, jitter means nothing."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0 if stop is None else start


class Message(NamedTuple):
    """On its way from ``source`` to ``target``; ``response`` None: the request itself."""

    source: int
    target: int
    request: Request
    response: Response | None = None


class ModelNode:
    """One node: its replica (None when it is down), its disk, and the syncs under way."""

    def __init__(self, node_id: int, storage: Storage) -> None:
        self.id = node_id
        self.storage = storage
        self.replica: MemoryReplica | None = None
        self.syncing: tuple[int, ...] = ()
        self.moves = 0

    @property
    def endpoint(self) -> Endpoint:
        at_first = endpoint_of(self.id)
        return at_first._replace(port=at_first.port + MOVED_BY * self.moves)

    def fingerprint(self, *, reshapes: bool) -> Any:
        """Equal for states that behave alike."""
        storage = self.storage
        disk: tuple[Any, ...] = (storage.election, tuple(storage.entries), storage.durable_end)
        if reshapes:
            disk += (storage.start, storage.base_epoch, _freeze(storage.snapshot, TIMING_FIELDS), self.moves)
        if self.replica is None:
            return (self.id, disk)
        state = self.replica.core.state
        volatile: tuple[Any, ...] = (
            _freeze(state.role, ALWAYS_TIMING if reshapes else TIMING_FIELDS),
            state.high_watermark,
            state.log.end,
            state.log.durable_end,
            state.log.epochs,
            tuple(sorted(state.timers)),
            tuple(sorted(state.inflight.items(), key=_inflight_order)),
            tuple(sorted(state.backing_off)),
            tuple((key.id, parked.request) for key, parked in sorted(state.parked.items())),
            state.shutting_down,
        )
        if reshapes:
            volatile += (state.voters.entries, self.replica.partial)
        return (self.id, disk, volatile, self.syncing)


def _inflight_order(item: tuple[tuple[int, str], Request]) -> tuple[int, str]:
    return item[0]


def _freeze(value: Any, hidden: frozenset[str]) -> Any:
    """A hashable value that is equal exactly for states that behave alike."""
    if isinstance(value, msgspec.Struct) and value.__struct_config__.frozen:
        return value
    if isinstance(value, msgspec.Struct):
        names = [name for name in value.__struct_fields__ if name not in hidden]
        return (type(value).__name__, *(_freeze(getattr(value, name), hidden) for name in names))
    if isinstance(value, dict):
        return tuple((key, _freeze(value[key], hidden)) for key in sorted(value))
    return value


class NodeView(NamedTuple):
    """What the walk needs to know of an interned node state, without thawing it."""

    up: bool
    leads: bool = False
    epoch: int = 0
    follows: int | None = None  # whose stream, if broken, would tell it something
    can_fire: tuple[Timer, ...] = ()
    inflight: tuple[tuple[int, Request], ...] = ()
    parked: tuple[tuple[int, Request], ...] = ()
    syncing: bool = False
    voters: tuple[int, ...] = ()
    has_news: bool = False  # more is committed than its snapshot holds


def view_of(node: ModelNode) -> NodeView:
    if node.replica is None:
        return NodeView(up=False)
    state, storage = node.replica.core.state, node.storage
    role = state.role
    idle = isinstance(role, Follower) and not state.may_campaign  # its fetch timer expires, and nothing comes of that
    return NodeView(
        up=True,
        leads=isinstance(role, Leader),
        epoch=role.epoch,
        follows=role.leader_id if isinstance(role, Follower) and not role.leader_suspected else None,
        can_fire=tuple(timer for timer in EXPIRING if timer in state.timers and not (idle and timer is Timer.FETCH)),
        inflight=tuple((peer, request) for (peer, _), request in state.inflight.items()),
        parked=tuple((key.id, parked.request) for key, parked in state.parked.items()),
        syncing=bool(node.syncing),
        voters=state.voters.latest.ids(),
        has_news=state.high_watermark > (storage.snapshot.id.offset if storage.snapshot else 0),
    )
