"""Asks the controller for ISR changes: one request in flight, what waits in the next, tried until answered.

Source: Kafka's DefaultAlterPartitionManager. What an answer means is `PartitionLeader.answered`.
"""

import logging
from collections.abc import Callable
from itertools import islice

from ottla.broker.controller_errand import Controller, ControllerErrand, by_topic
from ottla.broker.replication.decisions.isr import Answer, Outcome, PendingShrink, Proposal
from ottla.broker.replication.partition import Partition
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode
from ottla.runtime.timers import LoopTimers

RETRY_MS = 50
PARTITIONS_PER_REQUEST_MAX = 1_000
"""Each takes the controller some 0.1 ms, in which it hears nobody; Kafka's has a thread for that, and no bound."""

logger = logging.getLogger(__name__)


class AlterPartitionQueue(ControllerErrand):
    """Proposals on their way. A partition has at most one: it proposes again only after it knows what became of the last."""

    kind = "alter_partition"

    def __init__(
        self, controller: Controller, node_id: int, broker_epoch: Callable[[], int], timers: LoopTimers
    ) -> None:
        super().__init__(controller, node_id, broker_epoch, timers)
        self._waiting: dict[Partition, Proposal] = {}
        self._asked: dict[Partition, Proposal] = {}
        self.shrinks = self.expands = self.failures = 0  # proposals that were taken, and refused ones

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Sends the proposal with the next request."""
        self._waiting[partition] = proposal
        # A millisecond: followers come back together, and all their partitions fit in one request.
        self._plan(1)

    def _fill(self, body: controller_pb2.AlterPartitionRequest) -> bool:
        self._asked = {}
        while self._waiting and not self._asked:
            self._asked = self._taken()
        for topic_id, partitions in by_topic(self._asked).items():
            topic = body.topics.add(topic_id=topic_id)
            for partition in partitions:
                proposal = self._asked[partition]
                asked = topic.partitions.add(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                )
                for broker_id, broker_epoch in proposal.isr:
                    asked.new_isr.add(broker_id=broker_id, broker_epoch=broker_epoch)
        return bool(self._asked)

    def _taken(self) -> dict[Partition, Proposal]:
        """The oldest that fit in a request, but for those that metadata overtook."""
        taken = dict(islice(self._waiting.items(), PARTITIONS_PER_REQUEST_MAX))
        for partition in taken:
            del self._waiting[partition]
        return {partition: each for partition, each in taken.items() if _is_current(partition, each)}

    def _answered(self, told: controller_pb2.AlterPartitionResponse | None) -> None:
        asked, self._asked = self._asked, {}
        if told is None:
            self._retry(asked)
            return
        answers = {(topic.topic_id, each.partition_index): each for topic in told.topics for each in topic.partitions}
        again: dict[Partition, Proposal] = {}
        for partition, proposal in asked.items():
            if not self._apply(partition, proposal, answers.get((partition.topic_id, partition.index))):
                again[partition] = proposal
        if self._waiting:
            self._plan(1)  # what came meanwhile need not wait as long as what failed
        self._retry(again)

    def _apply(
        self,
        partition: Partition,
        proposal: Proposal,
        told: controller_pb2.AlterPartitionResponse.Partition | None,
    ) -> bool:
        """False if the proposal must be sent again."""
        if told is not None:
            self._count(proposal, told.error_code)
        leader = partition.leader
        if leader is None:
            return True
        if told is None:
            answer = Answer(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            answer = Answer(told.error_code, told.leader_epoch, told.partition_epoch, tuple(told.isr), told.min_in_sync)
        now_ms = self._timers.now_ms()
        outcome = leader.answered(proposal, answer, now_ms)
        if outcome is Outcome.ADOPT:
            logger.debug("%s has ISR %s", partition, leader.committed_isr)
            partition.isr_changed(now_ms)
        elif outcome is Outcome.REVERT:
            partition.advance(leader, now_ms)  # whom nobody waits for any more held it back
        return outcome is not Outcome.RETRY

    def _count(self, proposal: Proposal, error: int) -> None:
        """Counts by what the controller says, although the metadata log may have said it before."""
        if error:
            self.failures += 1
        elif isinstance(proposal.state, PendingShrink):
            self.shrinks += 1
        else:
            self.expands += 1

    def _retry(self, proposals: dict[Partition, Proposal]) -> None:
        for partition, proposal in proposals.items():
            leader = partition.leader
            if leader is None or not _is_current(partition, proposal):
                continue
            self._waiting.setdefault(partition, leader.proposal_for(proposal.state))
        if self._waiting:
            self._plan(RETRY_MS)


def _is_current(partition: Partition, proposal: Proposal) -> bool:
    leader = partition.leader
    return leader is not None and leader.isr is proposal.state and leader.epoch == proposal.leader_epoch
