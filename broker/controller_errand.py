"""What a broker has to tell the controller until it is answered: one request in flight, all that waits in the next."""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from ottla.proto import controller_pb2
from ottla.quorum.causes import broker_origin
from ottla.runtime.timers import LoopTimers, Timer

TIMEOUT_MS = 10_000

logger = logging.getLogger(__name__)


class Controller(Protocol):
    """The part of `ControllerChannel` that brokers ask through."""

    def call_back(
        self,
        request: controller_pb2.ControllerRequest,
        on_done: Callable[[controller_pb2.ControllerResponse | None], None],
        timeout_ms: int,
    ) -> None: ...


class ControllerErrand:
    """Sends requests of one kind, one after the other. Whoever has something to tell plans the next; while one is in flight
    its answer must."""

    def __init__(
        self,
        kind: str,
        controller: Controller,
        node_id: int,
        broker_epoch: Callable[[], int],
        timers: LoopTimers,
        *,
        fill: Callable[[Any], bool],
        answered: Callable[[Any], None],
    ) -> None:
        """``kind``: the request's field. ``fill`` completes its body, or answers False: there is nothing to tell.
        ``answered`` is given the response's body, None when there is none or the controller refused."""
        self._kind = kind
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._timers = timers
        self._fill = fill
        self._answered = answered
        self._timer: Timer | None = None
        self._in_flight = False
        self._closed = False

    def plan(self, delay_ms: int) -> None:
        """Sends in ``delay_ms``, unless that is planned already: what failed waits for its pause, and what is new with it."""
        if self._timer is None:
            self.plan_anew(delay_ms)

    def plan_anew(self, delay_ms: int) -> None:
        """Sends in ``delay_ms`` and not when it was planned."""
        if self._in_flight or self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.call_later_ms(delay_ms, self._send)

    def close(self) -> None:
        """Sends nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _send(self) -> None:
        self._timer = None
        request = controller_pb2.ControllerRequest(origin=broker_origin(self._node_id))
        body = getattr(request, self._kind)
        body.broker_id = self._node_id
        body.broker_epoch = self._broker_epoch()
        if self._fill(body):
            self._in_flight = True
            self._controller.call_back(request, self._done, TIMEOUT_MS)

    def _done(self, response: controller_pb2.ControllerResponse | None) -> None:
        self._in_flight = False
        if response is not None and response.error_code:
            logger.info("The controller refused %s: error %d", self._kind, response.error_code)
            response = None
        self._answered(None if response is None else getattr(response, self._kind))
