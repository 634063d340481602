"""Which brokers are alive: heartbeats that stay away, connections that end or are refused."""

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.state import ControllerSettings
from ottla.quorum.controller.knocking import Knock
from ottla.quorum.controller.leadership import Leadership
from ottla.quorum.metadata.views import BrokerView
from ottla.quorum.rpc.transport import Conversation, Handler, Reply
from ottla.runtime.timers import LoopTimers

_logger = logging.getLogger(__name__)

_SESSION_CHECKS_PER_TIMEOUT = 8
_SUSPICION_MS = 500
"""A broken stream says that the process may be dead; a live broker is heard from again within this time."""
_LATE_MS = 250
"""By so much a timer is late when this process stood still."""
_DOOR_PAUSE_MS = 50
"""Between knocks at a suspect's door: a dying process may close its connections before it closes its door."""
_KNOCK_PAUSE_MS = 2000
_KNOCKS_MAX = 100


class Suspect(NamedTuple):
    """A broker whose connection ended, as far as it had been heard from then."""

    broker_id: int
    epoch: int
    contacts: int
    leadership: Leadership

    @property
    def plan(self) -> str:
        return f"suspicion of {self.broker_id}"


class BrokerLiveness:
    """Evidence for the sessions of the leadership there is. What follows from a session's end is decided elsewhere."""

    def __init__(self, timers: LoopTimers, settings: ControllerSettings, knock: Knock | None) -> None:
        """``knock``: at the door of brokers that are not heard from."""
        self._timers = timers
        self._check_pause_ms = max(1, settings.session_timeout_ms // _SESSION_CHECKS_PER_TIMEOUT)
        self._listener = settings.inter_broker_listener
        self._knock = knock
        self._leadership: Leadership | None = None
        self._on_expired: Callable[[], None] = lambda: None
        self._checked_ms = 0
        self._carriers: dict[int, tuple[Conversation, int]] = {}  # by broker: where its last heartbeat came, its epoch
        self._suspects: dict[int, Suspect] = {}  # by broker: whom the latest suspicion is of
        self._broken: dict[int, int] = {}  # peers whose connections broke while this node was no controller, and when

    def begin(self, leadership: Leadership, on_expired: Callable[[], None]) -> None:
        """``on_expired``: sessions may be over."""
        self._leadership = leadership
        self._on_expired = on_expired
        self._checked_ms = now_ms = self._timers.now_ms()
        for broker in leadership.state.image.brokers.values():
            if not broker.fenced:
                leadership.state.sessions.expect(broker.id, broker.epoch, now_ms)
        leadership.repeat("sessions", self._check_pause_ms, self._check_sessions)
        for node_id, broken_ms in self._broken.items():
            if now_ms - broken_ms < leadership.state.settings.session_timeout_ms:
                self.peer_broken(node_id)
        self._broken.clear()
        if self._knock is not None:
            leadership.plan("knocking", _SUSPICION_MS, self._knock_at_silent)

    def end(self) -> None:
        """The leadership is over."""
        self._leadership = None
        self._suspects.clear()

    def _check_sessions(self) -> None:
        now_ms = self._timers.now_ms()
        late_ms = now_ms - self._checked_ms - self._check_pause_ms
        self._checked_ms = now_ms
        if self._leadership is not None and late_ms > self._check_pause_ms:
            # This process stood still; the heartbeats that came meanwhile still wait to be read.
            self._leadership.state.sessions.postpone(late_ms)
        self._on_expired()

    # --- connections --------------------------------------------------------------------------------------------------

    def heard_over(self, visit: Conversation, beat: rpc.BrokerHeartbeatRequest) -> None:
        """A heartbeat comes over that connection. Brokers that do not exist are not remembered."""
        if self._leadership is not None and beat.broker_id in self._leadership.state.image.brokers:
            self._carriers[beat.broker_id] = (visit, beat.broker_epoch)

    def visit_ended(self, visit: Conversation) -> None:
        """A connection is gone."""
        for broker_id, (carrier, epoch) in list(self._carriers.items()):
            if carrier is visit:
                del self._carriers[broker_id]
                self._suspect(broker_id, epoch)

    def peer_broken(self, node_id: int) -> None:
        """A connection to a node broke or was refused. That says something of a broker which has not been
        heard from in this leadership: one that lives speaks up as soon as it learns of the new controller. The old
        controller's connection breaks before there is a new one, who is to remember that: for a session, which the old
        controller would have ended."""
        if self._leadership is None:
            self._broken[node_id] = self._timers.now_ms()
            return
        state = self._leadership.state
        broker = state.image.brokers.get(node_id)
        if broker is not None and not state.sessions.was_heard(node_id):
            self._suspect(node_id, broker.epoch)

    # --- doors --------------------------------------------------------------------------------------------------------

    def _knock_at_silent(self) -> None:
        """A broker that lives speaks up as soon as it learns of a new controller. Whoever has not is not fenced for that
        (silence keeps its session); but where a connection is refused nobody lives."""
        leadership = self._leadership
        if leadership is None or self._knock is None:
            return
        sessions = leadership.state.sessions
        unfenced = (each for each in leadership.state.image.brokers.values() if each.endpoints and not each.fenced)
        silent = [each for each in unfenced if not sessions.was_heard(each.id)]
        for broker in silent[:_KNOCKS_MAX]:
            suspect = Suspect(broker.id, broker.epoch, sessions.contacts(broker.id), leadership)
            self._knock(*self._door(broker), partial(self._conclude, suspect))
        if silent:
            leadership.plan("knocking", _KNOCK_PAUSE_MS, self._knock_at_silent)

    def _suspect(self, broker_id: int, epoch: int) -> None:
        """Ends the broker's session unless it is heard from within the grace, or at once where its door is shut."""
        leadership = self._leadership
        if leadership is None:
            return
        sessions = leadership.state.sessions
        suspect = Suspect(broker_id, epoch, sessions.contacts(broker_id), leadership)
        is_known = leadership.is_planned(suspect.plan) and self._suspects.get(broker_id) == suspect
        if sessions.is_alive(broker_id, epoch, self._timers.now_ms()) and not is_known:
            # One of before was heard from since: what is left of that comes to nothing.
            self._suspects[broker_id] = suspect
            self._wait_for(suspect)
            self._knock_at(suspect)

    def _wait_for(self, suspect: Suspect) -> None:
        due_ms = self._timers.now_ms() + _SUSPICION_MS
        suspect.leadership.plan(suspect.plan, _SUSPICION_MS, partial(self._waited, suspect, due_ms))

    def _waited(self, suspect: Suspect, due_ms: int) -> None:
        """A process that stood still has not read yet what came meanwhile: the grace begins anew."""
        if self._timers.now_ms() - due_ms > _LATE_MS and self._is_open(suspect):
            self._wait_for(suspect)
        else:
            self._conclude(suspect)

    def _knock_at(self, suspect: Suspect) -> None:
        """Knocks at a suspect's door now and then, until it is heard from or not suspected any more. Not where it is
        fenced: it may be starting, and opens its door last."""
        leadership = suspect.leadership
        broker = leadership.state.image.brokers.get(suspect.broker_id)
        if self._knock is None or broker is None or broker.fenced or not broker.endpoints or not self._is_open(suspect):
            return
        self._knock(*self._door(broker), partial(self._conclude, suspect))
        leadership.plan(f"knock at {suspect.broker_id}", _DOOR_PAUSE_MS, partial(self._knock_at, suspect))

    def _door(self, broker: BrokerView) -> tuple[str, int]:
        """Where other nodes reach it: what it tells clients may be an address that means another machine here."""
        return broker.address_on(self._listener) or (broker.host, broker.port)

    def _is_open(self, suspect: Suspect) -> bool:
        """Whether it may still turn out to be dead."""
        sessions = suspect.leadership.state.sessions
        heard_since = sessions.contacts(suspect.broker_id) != suspect.contacts
        alive = sessions.is_alive(suspect.broker_id, suspect.epoch, self._timers.now_ms())
        return self._leadership is suspect.leadership and alive and not heard_since

    def _conclude(self, suspect: Suspect) -> None:
        """It has not been heard from, and the grace is over, or nobody listens where it did: its process is gone."""
        if self._is_open(suspect):
            _logger.warning("broker %d: its connection ended and it does not come back", suspect.broker_id)
            suspect.leadership.state.sessions.gone(suspect.broker_id, suspect.epoch)
            self._on_expired()


class Visit:
    """One connection to the controller. Its end speaks against the brokers whose latest heartbeats came over it."""

    def __init__(self, liveness: BrokerLiveness, handle: Handler) -> None:
        self._liveness = liveness
        self._handle = handle

    def handle(self, request: rpc.ControllerRequest, reply: Reply) -> None:
        if request.WhichOneof("body") == "broker_heartbeat":
            self._liveness.heard_over(self, request.broker_heartbeat)
        self._handle(request, reply)

    def ended(self) -> None:
        self._liveness.visit_ended(self)
