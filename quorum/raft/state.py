"""The state of one replica, and the few ways to touch it. No rule of the protocol lives here."""

from typing import TYPE_CHECKING, Any

import msgspec

from ottla.quorum.raft import rules
from ottla.quorum.raft.election_state import ElectionState
from ottla.quorum.raft.instructions import Instruction, Respond, SendRequest
from ottla.quorum.raft.log_summary import LogSummary
from ottla.quorum.raft.messages import FetchRequest, Request, Response
from ottla.quorum.raft.roles.candidate import Candidate
from ottla.quorum.raft.roles.follower import Follower
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.roles.prospective import Prospective
from ottla.quorum.raft.roles.resigned import Resigned
from ottla.quorum.raft.roles.unattached import Unattached
from ottla.quorum.raft.settings import RaftSettings
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import Endpoint, ReplicaKey, VoterHistory, VoterSet
from ottla.runtime.errors import ErrorCode

if TYPE_CHECKING:
    from random import Random

Role = Unattached | Prospective | Candidate | Leader | Resigned | Follower


class ParkedFetch(msgspec.Struct):
    """A fetch that waits for records, for a higher high watermark, or for its deadline."""

    request: FetchRequest
    token: Any
    deadline_ms: int


class Pause(msgspec.Struct):
    """Somebody who failed or refused ``times`` in a row is left alone until then."""

    times: int
    until_ms: int


class RaftState:
    """Everything a replica knows. ``inflight`` holds the one unanswered request per (destination, kind of request)."""

    __slots__ = (
        "_membership",
        "backing_off",
        "candidacies",
        "disconnects",
        "election",
        "endpoint",
        "high_watermark",
        "inflight",
        "key",
        "log",
        "now_ms",
        "out",
        "parked",
        "pauses",
        "rack_mates",
        "rng",
        "role",
        "settings",
        "shutting_down",
        "timers",
        "unreliable",
        "voters",
    )

    def __init__(
        self,
        settings: RaftSettings,
        key: ReplicaKey,
        endpoint: Endpoint,
        rng: "Random",
        log: LogSummary,
        voters: VoterHistory,
        election: ElectionState,
    ) -> None:
        self.settings = settings
        self.key = key
        self.endpoint = endpoint
        self.rng = rng
        self.log = log
        self.voters = voters
        self.election = election  # as last persisted
        self.role: Role = Unattached(election.epoch, election.leader_id, election.voted)
        self.high_watermark = log.start
        self.timers: dict[Timer, int] = {}
        self.inflight: dict[tuple[int, str], Request] = {}
        self.backing_off: dict[int, bool] = {}
        self.parked: dict[ReplicaKey, ParkedFetch] = {}
        self.now_ms = 0
        self.shutting_down = False
        self.out: list[Instruction] = []
        self._membership: tuple[VoterSet | None, bool] = (None, False)
        self.rack_mates: frozenset[int] = frozenset()
        # These stretch back-offs and decide nothing else.
        self.disconnects = 0
        self.candidacies = 0
        self.pauses: dict[tuple[int, str], Pause] = {}  # who takes this replica for another one than it says it is
        self.unreliable: dict[int, Pause] = {}  # sources that an observer would rather not ask

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def is_voter(self) -> bool:
        """Asked at every turn, so it is worked out once a voter set."""
        latest = self.voters.latest
        if latest is not self._membership[0]:
            self._membership = (latest, self.settings.can_vote and latest.contains(self.key))
        return self._membership[1]

    @property
    def may_campaign(self) -> bool:
        if not self.settings.can_vote:
            return False
        removal_committed = rules.change_is_committed(self.voters.latest_offset, self.high_watermark)
        was_voter = self.voters.previous.contains(self.key)
        return rules.may_campaign(self.voters.latest.contains(self.key), was_voter, removal_committed)

    @property
    def is_sole_voter(self) -> bool:
        return self.is_voter and len(self.voters.latest) == 1

    @property
    def known_leader_id(self) -> int | None:
        """The leader of this epoch, for others to hear; a leader that resigned is one no more."""
        return None if isinstance(self.role, Resigned) else self.role.leader_id

    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader of this epoch listens, as far as this replica knows."""
        role = self.role
        if isinstance(role, Follower | Leader):
            return role.endpoint
        if isinstance(role, Prospective):
            return role.leader_endpoint
        return None if self.known_leader_id is None else self.voters.latest.endpoint(self.known_leader_id)

    # --- instructions -------------------------------------------------------------------------------------------------

    def emit(self, instruction: Instruction) -> None:
        self.out.append(instruction)

    def respond(self, token: Any, response: Response) -> None:
        self.out.append(Respond(token, response))

    def response_fields(self, error: ErrorCode = ErrorCode.NONE) -> dict[str, Any]:
        """What every response says: error, epoch, leader, where the leader is."""
        return {
            "error": error,
            "epoch": self.role.epoch,
            "leader_id": self.known_leader_id,
            "leader_endpoint": self.leader_endpoint(),
        }

    # --- one request in flight per destination and kind -----------------------------------------------------------------

    def may_send(self, peer: int, kind: type[Request]) -> bool:
        key = (peer, kind.__name__)
        return key not in self.inflight and peer not in self.backing_off and not self._is_paused(key)

    def _is_paused(self, key: tuple[int, str]) -> bool:
        pause = self.pauses.get(key)
        return pause is not None and pause.until_ms > self.now_ms

    def send(self, peer: int, endpoint: Endpoint, request: Request) -> None:
        self.inflight[peer, type(request).__name__] = request
        self.out.append(SendRequest(peer, endpoint, request))

    def awaited(self, peer: int, request: Request) -> Request | None:
        return self.inflight.get((peer, type(request).__name__))

    def forget_request(self, peer: int, request: Request) -> None:
        self.inflight.pop((peer, type(request).__name__), None)

    def back_off(self, peer: int) -> None:
        self.backing_off[peer] = True
        self.arm_earlier(Timer.RETRY, self.settings.retry_backoff_ms)

    def pause(self, peer: int, request: Request) -> None:
        """Leaves somebody alone, longer each time: who is no voter where one is expected stays that until somebody does
        something about it."""
        key = (peer, type(request).__name__)
        self.pauses[key] = self.longer_pause(self.pauses.get(key), self.settings.fetch_timeout_ms // 2)
        self.arm_earlier(Timer.RETRY, self.pauses[key].until_ms - self.now_ms)

    def longer_pause(self, before: Pause | None, longest_ms: int) -> Pause:
        times = 0 if before is None else before.times
        return Pause(times + 1, self.now_ms + min(longest_ms, self.settings.retry_backoff_ms << min(times, 16)))

    # --- timers -------------------------------------------------------------------------------------------------------

    def arm(self, timer: Timer, delay_ms: int) -> None:
        self.timers[timer] = self.now_ms + delay_ms

    def arm_earlier(self, timer: Timer, delay_ms: int) -> None:
        """Brings the deadline forward; never puts it off."""
        self.timers[timer] = min(self.timers.get(timer, self.now_ms + delay_ms), self.now_ms + delay_ms)

    def disarm(self, timer: Timer) -> None:
        self.timers.pop(timer, None)

    def random_between(self, low: int, high: int) -> int:
        """Uniform over [low, high]; with jitter, milliseconds."""
        return low + self.rng.randrange(high - low + 1) if high > low else low

    def election_timeout_ms(self) -> int:
        base = self.settings.election_timeout_ms
        return self.random_between(base, 2 * base)
