"""Cores that are asked to change their voters."""

from typing import Any

from ottla.quorum.raft.events import (
    Event,
    LogSynced,
    TimerExpired,
    UpgradeRequested,
)
from ottla.quorum.raft.instructions import (
    AppendControl,
    Instruction,
    ReadAndRespond,
    Respond,
    SendRequest,
)
from ottla.quorum.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    RemoveVoterRequest,
    Response,
    UpdateVoterRequest,
)
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, VoterHistory, VoterSet
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.raft_core import CLUSTER, OneCore, endpoint, formatted, key

FETCH_TIMEOUT_MS = RaftSettings(cluster_id=CLUSTER).fetch_timeout_ms
SOMEBODY = ReplicaKey(-1)
ADMINISTRATOR: dict[str, Any] = {"cluster_id": CLUSTER, "epoch": 0, "sender": SOMEBODY}


class Replica(OneCore):
    """What it sends is collected and answered by hand; what it syncs is durable at once."""

    def __init__(self, voters: VoterSet, **arguments: Any) -> None:
        self.sent: list[SendRequest] = []
        self.appended: list[AppendControl] = []
        self.answers: dict[object, Response] = {}
        super().__init__(history=VoterHistory(voters), seed=1, **arguments)

    def tell(self, event: Event) -> list[Instruction]:
        out = super().tell(event)
        self._note(out)
        if self.state.log.durable_end < self.state.log.end:
            self._note(super().tell(LogSynced(self.state.log.end)))
        return out

    def _note(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, SendRequest):
                self.sent.append(instruction)
            elif isinstance(instruction, AppendControl):
                self.appended.append(instruction)
            elif isinstance(instruction, Respond | ReadAndRespond):
                self.answers[instruction.token] = instruction.response

    def response_to(self, request: Any) -> Response | None:
        """None while there is none."""
        token = object()
        self.ask(request, token)
        return self.answers.get(token)

    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    @property
    def voters(self) -> tuple[int, ...]:
        return self.core.state.voters.latest.ids()


class LeadingReplica(Replica):
    """Node 1, elected by all, with everything committed."""

    def __init__(self, voters: VoterSet, **arguments: Any) -> None:
        super().__init__(voters, **arguments)
        others = [voter.key.id for voter in voters.others(1)]
        self.elect(*others)
        for node in others:
            self.fetches(key(node))

    def fetches(self, sender: ReplicaKey, **fields: Any) -> Response | None:
        """See `fetch`; what this leader committed is known to it."""
        token = object()
        self.fetch(sender.id, sender=sender, token=token, high_watermark=self.state.high_watermark, **fields)
        return self.answers.get(token)

    def adds(self, voter: ReplicaKey) -> Response | None:
        return self.response_to(AddVoterRequest(voter=voter, endpoint=endpoint(voter.id), **ADMINISTRATOR))

    def removes(self, voter: ReplicaKey, sender: ReplicaKey = SOMEBODY) -> Response | None:
        return self.response_to(RemoveVoterRequest(voter=voter, **{**ADMINISTRATOR, "sender": sender}))

    def upgrades(self, *, validate_only: bool = False) -> Response | None:
        token = object()
        self.tell(UpgradeRequested(token, validate_only))
        return self.answers.get(token)

    def moves(self, sender: ReplicaKey, to: Endpoint, epoch: int | None = None) -> Response | None:
        at = self.state.epoch if epoch is None else epoch
        return self.response_to(UpdateVoterRequest(endpoint=to, cluster_id=CLUSTER, epoch=at, sender=sender))


def refused(response: Response | None, error: ErrorCode, *words: str) -> bool:
    message = getattr(response, "message", "")
    return response is not None and response.error is error and all(word in message for word in words)


# --- moving -----------------------------------------------------------------------------------------------------------


def logged(*nodes: int) -> LeadingReplica:
    """A leader whose voter set stands in the log."""
    leader = LeadingReplica(formatted(*nodes))
    assert leader.core.state.voters.latest_offset >= 0
    return leader


# --- joining by itself ------------------------------------------------------------------------------------------------


def follower(voters: VoterSet, node: int, **settings: Any) -> Replica:
    """A node that follows leader 2 of epoch 1, a fetch timeout later."""
    replica = Replica(voters, node=node, **settings)
    replica.response_to(
        BeginQuorumEpochRequest(cluster_id=CLUSTER, epoch=1, sender=key(2), receiver=key(node), endpoint=endpoint(2))
    )
    assert isinstance(replica.core.state.role, Follower)
    replica.sent.clear()
    replica.tell(TimerExpired(Timer.UPDATE_VOTER))
    return replica
