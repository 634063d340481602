"""A broker's standing with the controller: registers, keeps the session alive, leaves in order.

The rules are `LifecycleState`'s. A heartbeat leaves at each change of what it says, and every ``broker.heartbeat.interval.ms``
otherwise; one is in flight at a time. It also leaves at once when the way to the controller broke or the controller changed
(`contact_lost`): the controller takes the end of a stream as a sign of death, and is so told otherwise within a moment.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from ottla.broker.controller_errand import Controller
from ottla.broker.lifecycle_state import HOPELESS, LifecycleState, Phase
from ottla.proto import controller_pb2 as pb
from ottla.quorum.causes import broker_origin
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers, Timer

logger = logging.getLogger(__name__)

LEAVE_CHECK_S = 0.1
CONTROLLER_SILENCE_MS = 1_500
"""A controller that is there answers a leaving broker within this time, a fail-over included."""


class Metadata(Protocol):
    """The part of `MetadataLoader` used here."""

    def on_reached(self, offset: int, callback: Callable[[], None]) -> None: ...


class LifecycleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in ms."""

    heartbeat_interval_ms: int = 2_000
    session_timeout_ms: int = 9_000
    registration_timeout_ms: int = 60_000
    directory_failure_timeout_ms: int = 30_000

    @classmethod
    def of(cls, config: ServerConfig) -> "LifecycleSettings":
        return cls(
            heartbeat_interval_ms=config.integer("broker.heartbeat.interval.ms"),
            session_timeout_ms=config.integer("broker.session.timeout.ms"),
            registration_timeout_ms=config.integer("initial.broker.registration.timeout.ms"),
            directory_failure_timeout_ms=config.integer("log.dir.failure.timeout.ms"),
        )


class BrokerLifecycle:
    """Runs from `start` to `shut_down`. ``registration`` says who the broker is (its incarnation is new at each start)."""

    def __init__(
        self,
        registration: pb.RegisterBrokerRequest,
        settings: LifecycleSettings,
        controller: Controller,
        metadata: Metadata,
        applied_offset: Callable[[], int],
        timers: LoopTimers,
        *,
        on_epoch: Callable[[int], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        """``applied_offset``: of the last metadata record the publishers applied, as far as that is known to be committed. ``on_epoch`` is told the broker epoch."""
        self._registration = registration
        self._settings = settings
        self._controller = controller
        self._metadata = metadata
        self._applied_offset = applied_offset
        self._timers = timers
        self._on_epoch = on_epoch
        self._on_fatal = on_fatal
        self._state = LifecycleState(settings.heartbeat_interval_ms)
        self._timer: Timer | None = None
        self._in_flight = False
        self._again = False  # something changed while a heartbeat was in flight
        self._deadline_ms = 0
        self._complaint = ""
        self._answered_ms = 0
        self._offline: list[bytes] = []
        self._offline_sent = self._offline_told = (
            0  # how many of them the heartbeat in flight names, and the controller knows
        )
        self.caught_up = asyncio.Event()
        self.running = asyncio.Event()
        self.gone = asyncio.Event()

    @property
    def phase(self) -> Phase:
        return self._state.phase

    @property
    def broker_epoch(self) -> int:
        return self._state.broker_epoch

    def bound(self, listener: str, port: int) -> None:
        """The port that a listener has: of port 0, what clients are to be told, too."""
        for endpoint in self._registration.endpoints:
            if endpoint.name == listener and not endpoint.port:
                endpoint.port = port

    def start(self) -> None:
        """Registers; ``caught_up`` is set once the registration was applied here."""
        self._deadline_ms = self._timers.now_ms() + self._settings.registration_timeout_ms
        self._register()

    def ready(self) -> None:
        """The broker can serve: asks to be unfenced; ``running`` is set when it is."""
        self._state.ready()
        self._heartbeat_now()

    def directories_failed(self, directory_ids: list[bytes]) -> None:
        """Tells the controller that these directories are lost, with the next heartbeat, which is now."""
        self._offline += [each for each in directory_ids if each not in self._offline]
        self._heartbeat_now()
        check = partial(self._check_told, len(self._offline))
        self._timers.call_later_ms(self._settings.directory_failure_timeout_ms, check)

    def _check_told(self, count: int) -> None:
        """A broker that cannot say what it lost goes on as leader of it: better it ends (log.dir.failure.timeout.ms)."""
        if self._offline_told < count and not self._state.is_gone:
            self.stop()
            self._on_fatal(
                KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, "the controller could not be told that a log directory failed"
                )
            )

    def contact_lost(self) -> None:
        """The stream to the controller broke, or another controller was elected: it must hear from us at once."""
        self._heartbeat_now()

    async def shut_down(self, timeout_ms: int) -> None:
        """Hands leaderships over and returns when the controller lets the broker go, or when the time is up."""
        self._state.leave()
        if self._state.phase is Phase.LEAVING:
            self._answered_ms = self._timers.now_ms()
            self._heartbeat_now()
            await self._wait_to_go(timeout_ms)
        self.stop()

    async def _wait_to_go(self, timeout_ms: int) -> None:
        """Waits until the controller lets the broker go; without one (the whole cluster is being stopped) not for long."""
        deadline_ms = self._timers.now_ms() + timeout_ms
        while not self.gone.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.gone.wait(), LEAVE_CHECK_S)
            now_ms = self._timers.now_ms()
            if now_ms >= deadline_ms or now_ms - self._answered_ms >= CONTROLLER_SILENCE_MS:
                silence_ms = now_ms - self._answered_ms
                logger.warning("The controller did not let this broker go (silent for %d ms); it leaves", silence_ms)
                return

    def stop(self) -> None:
        """Says nothing more."""
        self._state.phase = Phase.GONE
        self.gone.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Registration.

    def _register(self) -> None:
        if self._state.phase is not Phase.REGISTERING:
            return
        request = pb.ControllerRequest(origin=broker_origin(self._registration.broker_id))
        request.register_broker.CopyFrom(self._registration)
        self._in_flight = True
        self._controller.call_back(request, self._registered, self._settings.session_timeout_ms // 2)

    def _registered(self, response: pb.ControllerResponse | None) -> None:
        self._in_flight = False
        if self._state.phase is not Phase.REGISTERING:
            return
        if response is None or response.error_code:
            self._registration_failed(response)
            return
        self._deadline_ms = 0
        self._complaint = ""
        epoch = response.register_broker.broker_epoch
        self._state.registered(epoch)
        self._on_epoch(epoch)
        logger.info("Registered as broker %d with epoch %d", self._registration.broker_id, epoch)
        self._metadata.on_reached(epoch, self._reached)

    def _reached(self) -> None:
        self._state.caught_up()
        self.caught_up.set()
        self._heartbeat_now()

    def _registration_failed(self, response: pb.ControllerResponse | None) -> None:
        reason = self._explain(response)
        if reason != self._complaint:  # one line for each reason, not for each attempt
            self._complaint = reason
            logger.warning("Not registered yet: %s", reason)
        error = response.error_code if response is not None else 0
        late = self._deadline_ms and self._timers.now_ms() >= self._deadline_ms
        if error in HOPELESS or late:
            code = ErrorCode(error) if error else ErrorCode.REQUEST_TIMED_OUT
            self.stop()
            self._on_fatal(KafkaError(code, f"broker {self._registration.broker_id} cannot register: {reason}"))
            return
        self._after(self._state.registration_failed(), self._register)

    def _explain(self, response: pb.ControllerResponse | None) -> str:
        if response is None:
            return "no controller answers"
        if response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return f"another running process is broker {self._registration.broker_id}; waiting for it to go"
        return response.error_message or f"error {response.error_code}"

    # Heartbeats.

    def _heartbeat_now(self) -> None:
        if self._in_flight:
            self._again = True
        elif self._state.is_registered:
            self._heartbeat()

    def _heartbeat(self) -> None:
        if not self._state.is_registered or self._in_flight:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        request = pb.ControllerRequest(origin=broker_origin(self._registration.broker_id))
        body = request.broker_heartbeat
        body.broker_id = self._registration.broker_id
        body.broker_epoch = self._state.broker_epoch
        body.current_metadata_offset = self._applied_offset()
        body.want_fence = self._state.want_fence
        body.want_shut_down = self._state.want_shut_down
        body.offline_directories.extend(self._offline)
        self._offline_sent = len(self._offline)
        self._in_flight = True
        self._again = False
        self._controller.call_back(request, self._heard, self._settings.session_timeout_ms // 2)

    def _heard(self, response: pb.ControllerResponse | None) -> None:
        self._in_flight = False
        state = self._state
        if state.is_gone:
            return
        before = state.phase
        if response is not None and response.error_code:
            logger.warning("The controller refused a heartbeat: error %d", response.error_code)
            state.refused(response.error_code)
            if state.phase is Phase.REGISTERING:
                self._after(0, self._register)
                return
        elif response is not None:
            self._answered_ms = self._timers.now_ms()
            self._offline_told = self._offline_sent
            told = response.broker_heartbeat
            state.heard(fenced=told.is_fenced, should_shut_down=told.should_shut_down)
        self._announce(before)
        if state.is_gone:
            self.gone.set()
            return
        answered = response is not None and not response.error_code
        self._after(0 if self._again else state.next_heartbeat_ms(answered=answered), self._heartbeat)

    def _announce(self, before: Phase) -> None:
        phase = self._state.phase
        if phase is before:
            return
        if phase is Phase.RUNNING:
            logger.info("Broker %d is unfenced", self._registration.broker_id)
            self.running.set()
        elif before is Phase.RUNNING and phase is Phase.READY:
            logger.warning("Broker %d was fenced: the controller had not heard from it", self._registration.broker_id)

    def _after(self, delay_ms: int, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.call_later_ms(delay_ms, action)
