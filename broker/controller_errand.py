"""What a broker has to tell the controller until it is answered: one request in flight, all that waits in the next."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, TypeVar

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


class OfTopic(Protocol):
    @property
    def topic_id(self) -> bytes: ...


Reported = TypeVar("Reported", bound=OfTopic)


class ControllerErrand(ABC):
    """Requests of one kind, one after the other: the base of what is reported. Who has something to tell plans the next; while
    one is in flight its answer must."""

    kind: ClassVar[str]
    """The request's field."""

    def __init__(
        self, controller: Controller, node_id: int, broker_epoch: Callable[[], int], timers: LoopTimers
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._timers = timers
        self._timer: Timer | None = None
        self._in_flight = False
        self._closed = False

    @abstractmethod
    def _fill(self, body: Any) -> bool:
        """Completes the request's body, or answers False: there is nothing to tell."""

    @abstractmethod
    def _answered(self, told: Any) -> None:
        """``told``: the response's body, None when there is none or the controller refused."""

    def _plan(self, delay_ms: int) -> None:
        """Sends in ``delay_ms``, unless that is planned already: what failed waits for its pause, and what is new with it."""
        if self._timer is None:
            self._plan_anew(delay_ms)

    def _plan_anew(self, delay_ms: int) -> None:
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
        body = getattr(request, self.kind)
        body.broker_id = self._node_id
        body.broker_epoch = self._broker_epoch()
        if self._fill(body):
            self._in_flight = True
            self._controller.call_back(request, self._done, TIMEOUT_MS)

    def _done(self, response: controller_pb2.ControllerResponse | None) -> None:
        self._in_flight = False
        if response is not None and response.error_code:
            logger.info("The controller refused %s: error %d", self.kind, response.error_code)
            response = None
        self._answered(None if response is None else getattr(response, self.kind))


def by_topic(partitions: Iterable[Reported]) -> dict[bytes, list[Reported]]:
    """Partitions by topic, as requests name them."""
    grouped: dict[bytes, list[Reported]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic_id, []).append(partition)
    return grouped
