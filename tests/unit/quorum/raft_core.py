"""One core on its own, for tests that hand it an event and look at what it answers."""

from random import Random
from typing import Any, TypeVar

from ottla.quorum.raft.core import RaftCore
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.events import Event, LogSynced, RequestReceived, ResponseReceived, Started, TimerExpired
from ottla.quorum.raft.instructions import Instruction, Respond, SendRequest
from ottla.quorum.raft.log_summary import LogSummary
from ottla.quorum.raft.messages import FetchRequest, Request, Response, VoteRequest, VoteResponse
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet

CLUSTER = "one core"
T = TypeVar("T")


def key(node: int, disk: int = 0) -> ReplicaKey:
    """Of a node, with its first disk or a later one; nobody has a negative number."""
    return ReplicaKey(node, bytes([node + 100 * disk]) * 16 if node >= 0 else None)


def endpoint(node: int) -> Endpoint:
    return Endpoint(f"node-{node}", 9000 + node)


def voter_set(*nodes: int) -> VoterSet:
    """As a configuration names them: without directories."""
    return VoterSet.of(Voter(ReplicaKey(node), endpoint(node)) for node in nodes)


def formatted(*nodes: int) -> VoterSet:
    """As `storage format --initial-controllers` leaves it: with directories."""
    return VoterSet.of(Voter(key(node), endpoint(node)) for node in nodes)


class OneCore:
    """Node 1 unless told otherwise; ``out`` are the instructions of the last event."""

    def __init__(
        self,
        *voters: int,
        node: int = 1,
        at: Endpoint | None = None,
        seed: int = 0,
        election: ElectionState | None = None,
        log: LogSummary | None = None,
        history: VoterHistory | None = None,
        **settings: Any,
    ) -> None:
        self.now_ms = 0
        self.core = RaftCore(
            RaftSettings(cluster_id=CLUSTER, **settings),
            key(node),
            at or endpoint(node),
            Random(seed),
            log or LogSummary(),
            history or VoterHistory(voter_set(*voters)),
            election or ElectionState(),
        )
        self.out: list[Instruction] = []
        self.tell(Started())

    @property
    def state(self) -> Any:
        return self.core.state

    @property
    def role(self) -> str:
        return type(self.core.state.role).__name__

    def tell(self, event: Event) -> list[Instruction]:
        self.out = self.core.handle(event, self.now_ms)
        return self.out

    def expire(self, timer: Timer) -> list[Instruction]:
        assert timer in self.state.timers, f"{timer} is not armed"
        return self.tell(TimerExpired(timer))

    def ask(self, request: Request, token: object = "token") -> list[Instruction]:
        return self.tell(RequestReceived(request, token))

    def answer(self, kind: type[Request], peer: int, response: Response | None) -> list[Instruction]:
        """To what this core asked ``peer`` and waits for."""
        request = self.state.inflight[peer, kind.__name__]
        return self.tell(ResponseReceived(peer, request, response))

    def grant(self, peer: int) -> list[Instruction]:
        return self.answer(VoteRequest, peer, VoteResponse(epoch=self.state.epoch, granted=True))

    def refuse(self, peer: int) -> list[Instruction]:
        return self.answer(VoteRequest, peer, VoteResponse(epoch=self.state.epoch, granted=False))

    def late_answer(self, peer: int, request: Request, response: Response) -> list[Instruction]:
        """To a question that it may have forgotten."""
        return self.tell(ResponseReceived(peer, request, response))

    def waiting(self, kind: type[Request]) -> list[int]:
        """Whom it has asked and not heard from."""
        return [peer for peer, name in self.state.inflight if name == kind.__name__]

    def sync(self) -> list[Instruction]:
        return self.tell(LogSynced(self.state.log.end))

    def elect(self, *granting: int) -> "OneCore":
        """Makes it the leader, with these votes."""
        if Timer.ELECTION in self.state.timers:
            self.expire(Timer.ELECTION)
        for _ in range(2):
            for peer in granting:
                if peer in self.waiting(VoteRequest):
                    self.grant(peer)
        assert self.role == "Leader"
        return self

    def fetch(
        self,
        node: int,
        *,
        offset: int | None = None,
        sender: ReplicaKey | None = None,
        token: object = None,
        **fields: Any,
    ) -> list[Instruction]:
        """A fetch of ``node`` arrives, by default from the end of this core's log: it has everything."""
        end = self.state.log.end if offset is None else offset
        request = FetchRequest(
            cluster_id=CLUSTER,
            epoch=fields.get("epoch", self.state.epoch),
            sender=sender or key(node),
            offset=end,
            last_epoch=fields.get("last_epoch", self.state.log.epoch_below(end)),
            high_watermark=fields.get("high_watermark", -1),
            max_wait_ms=fields.get("max_wait_ms", 500),
            max_bytes=1 << 20,
            can_vote=fields.get("can_vote", True),
        )
        return self.ask(request, token or f"fetch of {node}")

    def found(self, kind: type[T]) -> list[T]:
        """Of the last event."""
        return [instruction for instruction in self.out if isinstance(instruction, kind)]

    def told(self, token: object = "token") -> Any:
        """The response to what was asked under that token, at the last event."""
        responses = [instruction.response for instruction in self.found(Respond) if instruction.token == token]
        return responses[0] if responses else None

    def asked(self, kind: type[Request]) -> dict[int, Any]:
        """The requests of a kind that it sent at the last event, by whom it asked."""
        return {send.peer: send.request for send in self.found(SendRequest) if isinstance(send.request, kind)}
