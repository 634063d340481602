"""Partitions that this broker has no room for: others are asked to lead them, or to go on without it.

The first write that fails for it reports its partition, by `ReportDamage`; when, and when again, `decisions.handing_over` says, and who leads
then the controller (`quorum.controller.decisions.damage`).
"""

import logging
from collections.abc import Callable

from ottla.broker.controller_errand import Controller, ControllerErrand, by_topic
from ottla.broker.replication.decisions.handing_over import Pause, has_to_leave, is_over, pause_after
from ottla.broker.replication.partition import Partition
from ottla.proto import controller_pb2
from ottla.runtime.timers import LoopTimers

GATHER_MS = 10
PARTITIONS_PER_REQUEST_MAX = 1_000
"""Each takes the controller some 0.1 ms, in which it hears nobody."""

_Role = tuple[bytes, int, bool]
"""Topic id and index of a partition, and whether it is led."""

logger = logging.getLogger(__name__)


class HandingOver(ControllerErrand):
    """The partitions of this broker that cannot be written to because their directories are full."""

    kind = "report_damage"

    def __init__(
        self, controller: Controller, node_id: int, broker_epoch: Callable[[], int], timers: LoopTimers
    ) -> None:
        super().__init__(controller, node_id, broker_epoch, timers)
        self._waiting: dict[Partition, None] = {}
        self._pauses: dict[_Role, Pause] = {}

    def failed(self, partition: Partition) -> None:
        """A write failed. Called for each, so that most of the time it does nothing."""
        now_ms, role = self._timers.now_ms(), (partition.topic_id, partition.index, partition.leader is not None)
        before = self._pauses.get(role, Pause())
        if now_ms < before.until_ms or not _has_to_leave(partition):
            return
        self._pauses[role] = pause_after(before, now_ms)
        self._waiting[partition] = None
        self._plan(GATHER_MS)

    def _fill(self, body: controller_pb2.ReportDamageRequest) -> bool:
        now_ms = self._timers.now_ms()
        self._pauses = {role: pause for role, pause in self._pauses.items() if not is_over(pause, now_ms)}
        due = [each for each in self._waiting if each.usable and _has_to_leave(each)]
        leaving = due[:PARTITIONS_PER_REQUEST_MAX]
        self._waiting = dict.fromkeys(due[PARTITIONS_PER_REQUEST_MAX:])
        for topic_id, partitions in by_topic(leaving).items():
            topic = body.topics.add(topic_id=topic_id)
            for partition in partitions:
                topic.partitions.add(partition_index=partition.index, leader_epoch=partition.leader_epoch, is_full=True)
        if leaving:
            logger.warning(
                "No room for %s (partitions in all: %d): others are to go on without this replica",
                leaving[0],
                len(leaving),
            )
        return bool(leaving)

    def _answered(self, told: controller_pb2.ReportDamageResponse | None) -> None:
        refused = [each for topic in told.topics for each in topic.partitions if each.error_code] if told else []
        if refused:
            logger.warning("Partitions that stay here, for no other replica is in sync: %d", len(refused))
        if self._waiting:
            self._plan(GATHER_MS)


def _has_to_leave(partition: Partition) -> bool:
    return has_to_leave(
        is_full=partition.log.root.full, leads=partition.leader is not None, is_in_isr=partition.is_in_isr
    )
