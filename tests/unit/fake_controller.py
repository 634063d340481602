"""The controller as a broker sees it, played by the test."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.proto import controller_pb2

Response = controller_pb2.ControllerResponse


class Asked(NamedTuple):
    """A request that waits for its answer."""

    request: controller_pb2.ControllerRequest
    on_done: Callable[[Response | None], None]
    timeout_ms: int


class FakeController:
    """Keeps what it is asked until the test answers."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.requests: list[controller_pb2.ControllerRequest] = []
        """All that there were, answered or not."""

    def call_back(
        self,
        request: controller_pb2.ControllerRequest,
        on_done: Callable[[Response | None], None],
        timeout_ms: int,
    ) -> None:
        self.requests.append(request)
        self.asked.append(Asked(request, on_done, timeout_ms))

    @property
    def request(self) -> controller_pb2.ControllerRequest:
        """The only one that waits."""
        (asked,) = self.asked
        return asked.request

    def answer(self, response: Response | None) -> controller_pb2.ControllerRequest:
        """To the oldest; None: no answer came."""
        request, on_done, _ = self.asked.pop(0)
        on_done(response)
        return request
