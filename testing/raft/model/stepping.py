"""Node states and messages by number, and what an action does to a node: asked of the production core once, then remembered."""

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.quorum.raft.events import (
    Event,
    LogSynced,
    PeerDisconnected,
    RequestReceived,
    ResponseReceived,
    ShutdownRequested,
    Started,
    TimerExpired,
)
from ottla.quorum.raft.messages import AddVoterRequest, RemoveVoterRequest, Request, Response, VoterChangeResponse
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import ReplicaKey
from ottla.runtime.errors import ErrorCode
from ottla.testing.raft.cluster import endpoint_of, key_of
from ottla.testing.raft.invariants import InvariantViolation
from ottla.testing.raft.memory import MemoryReplica, Outbox, Storage
from ottla.testing.raft.model.bounds import Bounds
from ottla.testing.raft.model.node import Message, ModelNode, NodeView, NoRandom, view_of

ADMINISTRATOR = "the administrator"
NOBODY: dict[str, Any] = {"cluster_id": "model", "epoch": 0, "sender": ReplicaKey(-1)}


class Step(NamedTuple):
    """What an action did to a node: its new state, and the messages it sent."""

    node: int
    sent: tuple[int, ...]


class Stepper:
    """``note`` is told of every new node state, in the order of their numbers."""

    def __init__(self, bounds: Bounds, note: Callable[[Storage, MemoryReplica | None], None]) -> None:
        self.bounds = bounds
        self.settings = RaftSettings(
            cluster_id="model", snapshot_max_bytes=bounds.snapshot_piece_bytes, marks_epochs=False
        )
        self.views: list[NodeView] = []
        self.messages: list[Message] = []
        self._note = note
        self._frozen: list[bytes] = []
        self._node_ids: dict[Any, int] = {}
        self._message_ids: dict[Message, int] = {}
        self._steps: dict[tuple[int, Any], Step] = {}

    def new_node(self, node_id: int) -> int:
        """The number of a node that was never started."""
        return self._intern(ModelNode(node_id, Storage(self.bounds.voter_set())))

    def message_id(self, message: Message) -> int | None:
        return self._message_ids.get(message)

    def step(self, node_id: int, action: Any) -> Step:
        """What ``action`` does to an interned node state; computed by the production core once."""
        known = self._steps.get((node_id, action))
        if known is None:
            node: ModelNode = pickle.loads(self._frozen[node_id])  # noqa: S301 - what was pickled here
            sent = tuple(self._intern_message(message) for message in self._apply(node, action))
            known = self._steps[node_id, action] = Step(self._intern(node), sent)
        return known

    def _intern(self, node: ModelNode) -> int:
        fingerprint = node.fingerprint(reshapes=self.bounds.reshapes)
        number = self._node_ids.get(fingerprint)
        if number is None:
            number = self._node_ids[fingerprint] = len(self._frozen)
            self._frozen.append(pickle.dumps(node, pickle.HIGHEST_PROTOCOL))
            self.views.append(view_of(node))
            self._note(node.storage, node.replica)
        return number

    def _intern_message(self, message: Message) -> int:
        number = self._message_ids.setdefault(message, len(self.messages))
        if number == len(self.messages):
            self.messages.append(message)
        return number

    # --- what an action is to a node ----------------------------------------------------------------------------------

    def _apply(self, node: ModelNode, action: Any) -> list[Message]:
        if action == "start":
            return self._start(node)
        if action in ("crash", "crash-kept", "move"):
            node.storage.crash(1.0 if action == "crash-kept" else 0.0)
            node.replica = None
            node.syncing = ()
            node.moves += action == "move"
            return []
        return self._handle(node, self._event(node, action))

    def _start(self, node: ModelNode) -> list[Message]:
        node.storage.recover()
        node.replica = MemoryReplica(
            self.settings,
            key_of(node.id),
            node.endpoint,
            NoRandom(0),
            node.storage,
            max_records=self.bounds.records_per_fetch,
        )
        return self._handle(node, Started())

    def _event(self, node: ModelNode, action: Any) -> Event:
        assert node.replica is not None
        if isinstance(action, Timer):
            return TimerExpired(action)
        if isinstance(action, int):
            message = self.messages[action]
            if message.response is None:
                return RequestReceived(message.request, (message.source, message.request))
            return ResponseReceived(message.source, message.request, message.response)
        if isinstance(action, tuple):
            return _told(node.replica, *action)
        if action == "snapshot":
            taken = node.replica.snapshot_event(keep_log=False)
            assert taken is not None, "nothing was committed since the last one"
            return taken
        return self._synced(node) if action == "synced" else ShutdownRequested()

    @staticmethod
    def _synced(node: ModelNode) -> Event:
        end_offset, *later = node.syncing
        node.syncing = tuple(later)
        node.storage.durable_end = max(node.storage.durable_end, min(end_offset, node.storage.end))
        return LogSynced(end_offset)

    def _handle(self, node: ModelNode, event: Event) -> list[Message]:
        """The event, and at once the end of any back-off: waiting means nothing here."""
        assert node.replica is not None
        end_before = node.storage.end
        sent = self._run(node, node.replica, event)
        if node.storage.end < end_before:
            assert not node.syncing, "the log was cut while a sync was under way: what the sync promises is unclear"
        while Timer.RETRY in node.replica.core.state.timers:
            sent += self._run(node, node.replica, TimerExpired(Timer.RETRY))
        return sent

    def _run(self, node: ModelNode, replica: MemoryReplica, event: Event) -> list[Message]:
        outbox = replica.handle(event, 0)
        sent = self._messages(node, replica.core.state, outbox)
        for following in outbox.events:
            sent += self._run(node, replica, following)
        return sent

    @staticmethod
    def _messages(node: ModelNode, state: RaftState, outbox: Outbox) -> list[Message]:
        node.syncing = (*node.syncing, *outbox.syncs)
        sent = [Message(node.id, send.peer, send.request) for send in outbox.requests]
        for token, response in outbox.responses:
            if token == ADMINISTRATOR:
                _check_answer(state, response)
            else:
                sent.append(Message(node.id, token[0], token[1], response))
        return sent


def _told(replica: MemoryReplica, kind: str, subject: int, *rest: Any) -> Event:
    """Appends, changes of voters, and what the network tells: a broken stream, a request that failed."""
    if kind == "append":
        return replica.append_event([subject.to_bytes(8, "big")])
    if kind == "broken":
        return PeerDisconnected(subject)
    if kind == "failed":
        return ResponseReceived(subject, rest[0], None)
    request: Request = RemoveVoterRequest(voter=key_of(subject), **NOBODY)
    if kind == "add":
        request = AddVoterRequest(voter=key_of(subject), endpoint=endpoint_of(subject), **NOBODY)
    return RequestReceived(request, ADMINISTRATOR)


def _check_answer(state: RaftState, response: Response) -> None:
    assert isinstance(response, VoterChangeResponse)
    if response.error is ErrorCode.NONE and state.voters.latest_offset >= state.high_watermark:
        story = f"node {state.key.id} confirms {state.voters.latest.ids()}"
        raise InvariantViolation("acknowledged means committed", story)
