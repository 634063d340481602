"""Damage that reads, followers or the scrub found in this broker's replicas: reported until each was cut and is fetched anew.

When a replica may cut is `decisions.healing`'s rule, performed where it begins to follow an epoch (`Partition.follow`); who may
leave the ISR is the controller's (`quorum.controller.decisions.damage`). Here are only the reports: one in flight, all that is damaged in it.
"""

import logging
from collections.abc import Callable

from ottla.broker.controller_errand import Controller, ControllerErrand, by_topic
from ottla.broker.replication.decisions.healing import report_again_ms
from ottla.broker.replication.partition import Partition
from ottla.log.errors import DamagedLogError
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from ottla.runtime.timers import LoopTimers

logger = logging.getLogger(__name__)


class Healing(ControllerErrand):
    """The damaged partitions of this broker."""

    kind = "report_damage"

    def __init__(
        self, controller: Controller, node_id: int, broker_epoch: Callable[[], int], timers: LoopTimers
    ) -> None:
        super().__init__(controller, node_id, broker_epoch, timers)
        self._damaged: dict[Partition, int] = {}  # what its last report was answered with
        self._refusals = 0
        self.found_count = 0

    def found(self, partition: Partition, damage: DamagedLogError) -> None:
        """Records of a replica are not what was written. Said again of the same place, it does nothing."""
        if not partition.damaged(damage.offset):
            return
        self.found_count += 1
        logger.error("%s is damaged from offset %d on: %s", partition, partition.damaged_from, damage.message)
        self._damaged[partition] = ErrorCode.NONE
        self._refusals = 0
        self._plan_anew(1)

    @property
    def damaged_count(self) -> int:
        """Replicas with damage that is not cut yet."""
        return sum(each.usable and each.is_damaged for each in self._damaged)

    def _fill(self, body: controller_pb2.ReportDamageRequest) -> bool:
        self._damaged = {each: told for each, told in self._damaged.items() if each.usable and each.is_damaged}
        for topic_id, partitions in by_topic(self._damaged).items():
            topic = body.topics.add(topic_id=topic_id)
            for partition in partitions:
                topic.partitions.add(partition_index=partition.index, leader_epoch=partition.leader_epoch)
        return bool(self._damaged)

    def _answered(self, told: controller_pb2.ReportDamageResponse | None) -> None:
        answers: dict[tuple[bytes, int], int] = {}
        if told is not None:
            for topic in told.topics:
                answers.update({(topic.topic_id, each.partition_index): each.error_code for each in topic.partitions})
        for partition, before in self._damaged.items():
            error = answers.get((partition.topic_id, partition.index), before)
            self._damaged[partition] = error
            if error != before and error == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
                logger.error(
                    "%s cannot be healed: no other replica is in sync. What is damaged is refused, the rest is served",
                    partition,
                )
        self._plan(report_again_ms(self._refusals))
        self._refusals += 1
