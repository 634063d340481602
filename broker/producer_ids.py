"""Producer ids for idempotent producers: blocks from the controller, one kept ahead."""

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.proto import controller_pb2
from ottla.quorum.causes import broker_origin
from ottla.runtime.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.quorum.controller.channel import ControllerChannel

logger = logging.getLogger(__name__)

OnProducerId = Callable[[int, ErrorCode], None]
"""Given a producer id and NONE, or -1 and why there is none."""

_REQUEST_TIMEOUT_MS = 10_000
_AHEAD_FRACTION = 10  # the next block is asked for when a tenth of this one is left
_WAITING_MAX = 10_000


class ProducerIds:
    """Hands out ids that no other broker hands out. ``broker_epoch()`` is this broker's registration, -1 before it."""

    def __init__(self, controller: "ControllerChannel", node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._next = self._end = 0
        self._refill_at = 0
        self._spare: tuple[int, int] | None = None
        self._asked = False
        self._waiting: deque[OnProducerId] = deque()

    def allocate(self, on_done: OnProducerId) -> None:
        """Calls back with the next id: at once unless the controller must be asked first.

        When the controller has none to give in time, the error is one that clients answer by trying again.
        """
        if self._next < self._end or self._use_spare():
            on_done(self._take(), ErrorCode.NONE)
        elif len(self._waiting) >= _WAITING_MAX:
            on_done(-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            self._waiting.append(on_done)
        self._ask_ahead()

    def _take(self) -> int:
        self._next += 1
        return self._next - 1

    def _use_spare(self) -> bool:
        if self._spare is None:
            return False
        self._next, self._end = self._spare
        self._refill_at = self._end - (self._end - self._next) // _AHEAD_FRACTION
        self._spare = None
        return True

    def _ask_ahead(self) -> None:
        if self._asked or self._spare is not None or self._next < self._refill_at:
            return
        self._asked = True
        request = controller_pb2.ControllerRequest(
            allocate_producer_ids=controller_pb2.AllocateProducerIdsRequest(
                broker_id=self._node_id, broker_epoch=self._broker_epoch()
            ),
            origin=broker_origin(self._node_id),
        )
        self._controller.call_back(request, self._on_block, _REQUEST_TIMEOUT_MS)

    def _on_block(self, response: controller_pb2.ControllerResponse | None) -> None:
        self._asked = False
        if response is None or response.error_code or not response.allocate_producer_ids.producer_id_count:
            reason = "no answer" if response is None else ErrorCode(response.error_code).name
            logger.warning("The controller gave no producer ids: %s", reason)
            self._fail_waiting()
            return
        block = response.allocate_producer_ids
        self._spare = (block.producer_id_start, block.producer_id_start + block.producer_id_count)
        if self._next >= self._end:
            self._use_spare()
        while self._waiting and self._next < self._end:
            self._waiting.popleft()(self._take(), ErrorCode.NONE)
        if self._waiting:
            self._ask_ahead()

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for on_done in waiting:
            on_done(-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
