"""Tells the controller in which directory each replica lies, where it does not know: AssignReplicasToDirs (KIP-858).

One request in flight, everything that waits in the next, tried until answered. Source: Kafka's AssignmentsManager.
"""

import logging
from collections.abc import Callable
from itertools import islice

from ottla.broker.replication.alter_partition import TIMEOUT_MS, Controller
from ottla.proto import controller_pb2
from ottla.runtime.timers import LoopTimers

REPLICAS_PER_REQUEST_MAX = 2_250
RETRY_MS = 500

_Replica = tuple[bytes, int]  # topic id, partition

logger = logging.getLogger(__name__)


class AssignmentQueue:
    """Assignments on their way; of one replica the latest counts."""

    def __init__(
        self, controller: Controller, node_id: int, broker_epoch: Callable[[], int], timers: LoopTimers
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._timers = timers
        self._waiting: dict[_Replica, bytes] = {}
        self._in_flight: dict[_Replica, bytes] = {}
        self._scheduled = False
        self._closed = False

    def submit(self, topic_id: bytes, index: int, directory_id: bytes) -> None:
        """Sends it with the next request, unless that very assignment is on its way."""
        replica = (topic_id, index)
        if self._in_flight.get(replica) != directory_id:
            self._waiting[replica] = directory_id
            # A millisecond: a topic's partitions come together, and fit in one request.
            self._schedule(1)

    def close(self) -> None:
        self._closed = True

    def _schedule(self, delay_ms: int) -> None:
        if not self._scheduled and not self._in_flight and not self._closed:
            self._scheduled = True
            self._timers.call_later_ms(delay_ms, self._send)

    def _send(self) -> None:
        self._scheduled = False
        if self._in_flight or self._closed or not self._waiting:
            return
        self._in_flight = dict(islice(self._waiting.items(), REPLICAS_PER_REQUEST_MAX))
        for replica in self._in_flight:
            del self._waiting[replica]
        self._controller.call_back(self._request(), self._answered, TIMEOUT_MS)

    def _request(self) -> controller_pb2.ControllerRequest:
        request = controller_pb2.ControllerRequest(origin=f"broker {self._node_id}")
        body = request.assign_replicas_to_directories
        body.broker_id = self._node_id
        body.broker_epoch = self._broker_epoch()
        grouped: dict[bytes, dict[bytes, list[int]]] = {}
        for (topic_id, index), directory_id in self._in_flight.items():
            grouped.setdefault(directory_id, {}).setdefault(topic_id, []).append(index)
        for directory_id, topics in grouped.items():
            directory = body.directories.add(id=directory_id)
            for topic_id, indexes in topics.items():
                directory.topics.add(topic_id=topic_id, partitions=indexes)
        return request

    def _answered(self, response: controller_pb2.ControllerResponse | None) -> None:
        asked, self._in_flight = self._in_flight, {}
        if response is None or response.error_code:
            if response is not None:
                logger.info("The controller refused directory assignments: error %d", response.error_code)
            self._waiting = {**asked, **self._waiting}
            self._schedule(RETRY_MS)
            return
        for directory in response.assign_replicas_to_directories.directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    if each.error_code:  # the topic or the replica went: there is nothing to tell any more
                        logger.info("%s-%d: assignment refused: error %d", topic.topic_id.hex(), each.partition_index, each.error_code)  # fmt: skip
        if self._waiting:
            self._schedule(1)
