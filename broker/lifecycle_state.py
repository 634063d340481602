"""Where a broker stands between its start and its end, and what its heartbeats must say. Pure; kraft.md 3.1 and 2.4."""

from enum import Enum

from ottla.runtime.errors import ErrorCode

LEAVING_INTERVAL_MS = 50
FENCED_INTERVAL_MS = 50
LOST_INTERVAL_MS = 100
REGISTRATION_BACKOFF_MS = 100

REGISTER_AGAIN = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
HOPELESS = (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.UNSUPPORTED_VERSION)


class Phase(Enum):
    REGISTERING = "asks the controller for its epoch"
    CATCHING_UP = "reads the metadata log up to its own registration"
    STARTING = "opens its logs; wants to stay fenced"
    READY = "wants to be unfenced"
    RUNNING = "unfenced: leads, and is in ISRs"
    LEAVING = "hands its leaderships over"
    GONE = "may stop"


class LifecycleState:
    """What happened to the broker so far. Its methods are the events."""

    def __init__(self, heartbeat_interval_ms: int) -> None:
        self.phase = Phase.REGISTERING
        self.broker_epoch = -1
        self._interval_ms = heartbeat_interval_ms
        self._registrations_failed = 0
        self._ready = False
        self._leaving = False

    @property
    def want_fence(self) -> bool:
        return not self._ready

    @property
    def want_shut_down(self) -> bool:
        return self.phase is Phase.LEAVING

    @property
    def is_registered(self) -> bool:
        return self.phase not in (Phase.REGISTERING, Phase.GONE)

    @property
    def is_gone(self) -> bool:
        return self.phase is Phase.GONE

    def registered(self, broker_epoch: int) -> None:
        """The controller took the registration: the record stands at offset ``broker_epoch``."""
        self.broker_epoch = broker_epoch
        self._registrations_failed = 0
        self.phase = Phase.LEAVING if self._leaving else Phase.CATCHING_UP

    def registration_failed(self) -> int:
        """How long to wait before the next attempt, in ms: longer each time, up to the heartbeat interval."""
        delay_ms = min(self._interval_ms, REGISTRATION_BACKOFF_MS << min(self._registrations_failed, 10))
        self._registrations_failed += 1
        return delay_ms

    def caught_up(self) -> None:
        """The own registration was applied: whatever was decided about this broker before is known."""
        if self.phase is Phase.CATCHING_UP:
            self.phase = Phase.READY if self._ready else Phase.STARTING

    def ready(self) -> None:
        """Logs are open, requests can be served."""
        self._ready = True
        if self.phase is Phase.STARTING:
            self.phase = Phase.READY

    def leave(self) -> None:
        """The process was asked to stop. A broker nobody counts on may go at once."""
        self._leaving = True
        self.phase = Phase.LEAVING if self.phase in (Phase.RUNNING, Phase.READY) else Phase.GONE

    def heard(self, *, fenced: bool, should_shut_down: bool) -> None:
        """The controller answered a heartbeat."""
        if self.phase is Phase.LEAVING:
            if should_shut_down:
                self.phase = Phase.GONE
        elif self.phase is Phase.READY and not fenced:
            self.phase = Phase.RUNNING
        elif self.phase is Phase.RUNNING and fenced:
            self.phase = Phase.READY  # it had not heard from us for a session: ask again

    def refused(self, error: int) -> None:
        """The controller answered a heartbeat with an error."""
        if error in REGISTER_AGAIN and self.phase is not Phase.GONE:
            self.phase = Phase.REGISTERING

    def next_heartbeat_ms(self, *, answered: bool) -> int:
        """How long after the last answer (or failure) the next heartbeat leaves."""
        if not answered:
            return min(self._interval_ms, LOST_INTERVAL_MS)
        if self.phase is Phase.LEAVING:
            return LEAVING_INTERVAL_MS
        if self.phase is Phase.READY:
            return FENCED_INTERVAL_MS
        return self._interval_ms
