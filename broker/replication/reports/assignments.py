"""Tells the controller in which directory each replica lies, where it does not know: AssignReplicasToDirs (KIP-858).

One request in flight, everything that waits in the next, tried until answered. Source: Kafka's AssignmentsManager.
"""

import logging
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from ottla.broker.controller_errand import Controller, ControllerErrand
from ottla.proto import controller_pb2
from ottla.runtime.timers import LoopTimers

REPLICAS_PER_REQUEST_MAX = 2_250
RETRY_MS = 500

_Replica = tuple[bytes, int]  # topic id, partition


class _Place(NamedTuple):
    directory_id: bytes
    moved_from: tuple[bytes, ...]


logger = logging.getLogger(__name__)


class AssignmentQueue(ControllerErrand):
    """Assignments on their way; of one replica the latest counts."""

    kind = "assign_replicas_to_directories"

    def __init__(
        self, controller: Controller, node_id: int, broker_epoch: Callable[[], int], timers: LoopTimers
    ) -> None:
        super().__init__(controller, node_id, broker_epoch, timers)
        self._waiting: dict[_Replica, _Place] = {}
        self._asked: dict[_Replica, _Place] = {}

    def submit(
        self,
        topic_id: bytes,
        index: int,
        directory_id: bytes,
        known: bytes | None = None,
        moved_from: tuple[bytes, ...] = (),
    ) -> None:
        """Sends it with the next request, unless the controller has that very word, or it is on its way. ``known``: what the metadata
        say; ``moved_from``: where the replica lay before, with all that it has now (`Log.moved_from`)."""
        replica = (topic_id, index)
        asked = self._asked.get(replica)
        if directory_id == (known if asked is None else asked.directory_id):
            self._waiting.pop(replica, None)  # it went elsewhere meanwhile, and came back
            return
        self._waiting[replica] = _Place(directory_id, moved_from)
        # A millisecond: a topic's partitions come together, and fit in one request.
        self._plan(1)

    def _fill(self, body: controller_pb2.AssignReplicasToDirectoriesRequest) -> bool:
        self._asked = dict(islice(self._waiting.items(), REPLICAS_PER_REQUEST_MAX))
        for replica in self._asked:
            del self._waiting[replica]
        grouped: dict[bytes, dict[bytes, dict[int, tuple[bytes, ...]]]] = {}
        for (topic_id, index), (directory_id, moved_from) in self._asked.items():
            grouped.setdefault(directory_id, {}).setdefault(topic_id, {})[index] = moved_from
        for directory_id, topics in grouped.items():
            directory = body.directories.add(id=directory_id)
            for topic_id, replicas in topics.items():
                topic = directory.topics.add(topic_id=topic_id, partitions=replicas)
                for index, earlier in replicas.items():
                    if earlier:
                        topic.moved.add(partition_index=index, earlier_directories=earlier)
        return bool(self._asked)

    def _answered(self, told: controller_pb2.AssignReplicasToDirectoriesResponse | None) -> None:
        asked, self._asked = self._asked, {}
        if told is None:
            self._waiting = {**asked, **self._waiting}
            self._plan(RETRY_MS)
            return
        for directory in told.directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    if each.error_code:  # the topic or the replica went: there is nothing to tell any more
                        logger.info("%s-%d: assignment refused: error %d", topic.topic_id.hex(), each.partition_index, each.error_code)  # fmt: skip
        if self._waiting:
            self._plan(1)
