"""Which brokers are alive: heartbeats that stay away, connections that end or are refused."""

import logging
from collections.abc import Callable
from functools import partial

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.knocking import Knock
from ottla.quorum.controller.leadership import Leadership
from ottla.quorum.rpc.transport import Conversation, Handler, Reply
from ottla.runtime.timers import LoopTimers

_logger = logging.getLogger(__name__)

_SESSION_CHECKS_PER_TIMEOUT = 8
_SUSPICION_MS = 500
"""A broken stream says that the process may be dead; a live broker is heard from again within this time."""
_KNOCK_PAUSE_MS = 2000
_KNOCKS_MAX = 100


class BrokerLiveness:
    """Evidence for the sessions of the leadership there is. What follows from a session's end is decided elsewhere."""

    def __init__(self, timers: LoopTimers, session_timeout_ms: int, knock: Knock | None) -> None:
        """``knock``: at the door of brokers that are not heard from."""
        self._timers = timers
        self._check_pause_ms = max(1, session_timeout_ms // _SESSION_CHECKS_PER_TIMEOUT)
        self._knock = knock
        self._leadership: Leadership | None = None
        self._on_expired: Callable[[], None] = lambda: None
        self._checked_ms = 0
        self._carriers: dict[int, tuple[Conversation, int]] = {}  # by broker: where its last heartbeat came, its epoch

    def begin(self, leadership: Leadership, on_expired: Callable[[], None]) -> None:
        """``on_expired``: sessions may be over."""
        self._leadership = leadership
        self._on_expired = on_expired
        self._checked_ms = now_ms = self._timers.now_ms()
        for broker in leadership.state.image.brokers.values():
            if not broker.fenced:
                leadership.state.sessions.expect(broker.id, broker.epoch, now_ms)
        leadership.repeat("sessions", self._check_pause_ms, self._check_sessions)
        if self._knock is not None:
            leadership.plan("knocking", _SUSPICION_MS, self._knock_at_silent)

    def end(self) -> None:
        """The leadership is over."""
        self._leadership = None

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
        heard from in this leadership: one that lives speaks up as soon as it learns of the new controller."""
        if self._leadership is None:
            return
        state = self._leadership.state
        broker = state.image.brokers.get(node_id)
        if broker is not None and not state.sessions.was_heard(node_id):
            self._suspect(node_id, broker.epoch)

    def _knock_at_silent(self) -> None:
        """A broker that lives speaks up as soon as it learns of a new controller. Whoever has not is not fenced for that
        (silence keeps its session); but where a connection is refused nobody lives."""
        if self._leadership is None or self._knock is None:
            return
        state = self._leadership.state
        unfenced = (each for each in state.image.brokers.values() if each.endpoints and not each.fenced)
        silent = [each for each in unfenced if not state.sessions.was_heard(each.id)]
        for broker in silent[:_KNOCKS_MAX]:
            self._knock(broker.host, broker.port, partial(self.peer_broken, broker.id))
        if silent:
            self._leadership.plan("knocking", _KNOCK_PAUSE_MS, self._knock_at_silent)

    def _suspect(self, broker_id: int, epoch: int) -> None:
        """Ends the broker's session unless it is heard from within the grace."""
        leadership = self._leadership
        if leadership is None:
            return
        sessions, name = leadership.state.sessions, f"suspicion of {broker_id}"
        if not sessions.is_alive(broker_id, epoch, self._timers.now_ms()) or leadership.is_planned(name):
            return
        heard_ms = sessions.last_contact(broker_id)

        def conclude() -> None:
            if sessions.last_contact(broker_id) == heard_ms:
                _logger.warning("broker %d: its connection ended and it does not come back", broker_id)
                sessions.gone(broker_id, epoch)
                self._on_expired()

        leadership.plan(name, _SUSPICION_MS, conclude)


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
