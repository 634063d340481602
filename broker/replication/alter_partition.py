"""Asks the controller for ISR changes: one request in flight, all partitions that wait in it, tried until answered.

Source: Kafka's DefaultAlterPartitionManager. What an answer means is `PartitionLeader.answered`.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from ottla.broker.replication.decisions.isr import Outcome
from ottla.broker.replication.decisions.leader import Answer, Proposal
from ottla.broker.replication.partition import Partition
from ottla.proto import controller_pb2
from ottla.quorum.causes import broker_origin
from ottla.runtime.errors import ErrorCode
from ottla.runtime.timers import LoopTimers

RETRY_MS = 50
TIMEOUT_MS = 10_000

logger = logging.getLogger(__name__)


class Controller(Protocol):
    """The part of `ControllerChannel` used here."""

    def call_back(
        self,
        request: controller_pb2.ControllerRequest,
        on_done: Callable[[controller_pb2.ControllerResponse | None], None],
        timeout_ms: int,
    ) -> None: ...


class AlterPartitionQueue:
    """Proposals on their way. A partition has at most one: it proposes again only after it knows what became of the last."""

    def __init__(
        self, controller: Controller, node_id: int, broker_epoch: Callable[[], int], timers: LoopTimers
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._timers = timers
        self._waiting: dict[Partition, Proposal] = {}
        self._in_flight: dict[Partition, Proposal] = {}
        self._scheduled = False
        self._closed = False

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Sends the proposal with the next request."""
        self._waiting[partition] = proposal
        # A millisecond: followers come back together, and all their partitions fit in one request.
        self._schedule(1)

    def close(self) -> None:
        self._closed = True

    def _schedule(self, delay_ms: int) -> None:
        if not self._scheduled and not self._in_flight and not self._closed:
            self._scheduled = True
            self._timers.call_later_ms(delay_ms, self._send)

    def _send(self) -> None:
        self._scheduled = False
        if self._in_flight or self._closed:
            return
        waiting, self._waiting = self._waiting, {}
        self._in_flight = {partition: each for partition, each in waiting.items() if _is_current(partition, each)}
        if self._in_flight:
            self._controller.call_back(self._request(), self._answered, TIMEOUT_MS)

    def _request(self) -> controller_pb2.ControllerRequest:
        request = controller_pb2.ControllerRequest(origin=broker_origin(self._node_id))
        body = request.alter_partition
        body.broker_id = self._node_id
        body.broker_epoch = self._broker_epoch()
        topics: dict[bytes, controller_pb2.AlterPartitionRequest.Topic] = {}
        for partition, proposal in self._in_flight.items():
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = body.topics.add(topic_id=partition.topic_id)
            asked = topic.partitions.add(
                partition_index=partition.index,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
            )
            for broker_id, broker_epoch in proposal.isr:
                asked.new_isr.add(broker_id=broker_id, broker_epoch=broker_epoch)
        return request

    def _answered(self, response: controller_pb2.ControllerResponse | None) -> None:
        asked, self._in_flight = self._in_flight, {}
        if response is None or response.error_code:
            if response is not None:
                logger.info("The controller refused to alter partitions: error %d", response.error_code)
            self._retry(asked)
            return
        answers = {
            (topic.topic_id, each.partition_index): each
            for topic in response.alter_partition.topics
            for each in topic.partitions
        }
        again: dict[Partition, Proposal] = {}
        for partition, proposal in asked.items():
            if not self._apply(partition, proposal, answers.get((partition.topic_id, partition.index))):
                again[partition] = proposal
        if self._waiting:
            self._schedule(1)  # what came meanwhile need not wait as long as what failed
        self._retry(again)

    def _apply(
        self,
        partition: Partition,
        proposal: Proposal,
        told: controller_pb2.AlterPartitionResponse.Partition | None,
    ) -> bool:
        """False if the proposal must be sent again."""
        leader = partition.leader
        if leader is None:
            return True
        if told is None:
            answer = Answer(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            answer = Answer(told.error_code, told.leader_epoch, told.partition_epoch, tuple(told.isr))
        now_ms = self._timers.now_ms()
        outcome = leader.answered(proposal, answer, now_ms)
        if outcome is Outcome.ADOPT:
            logger.debug("%s has ISR %s", partition, leader.committed_isr)
            partition.isr_changed(now_ms)
        return outcome is not Outcome.RETRY

    def _retry(self, proposals: dict[Partition, Proposal]) -> None:
        for partition, proposal in proposals.items():
            leader = partition.leader
            if leader is None or not _is_current(partition, proposal):
                continue
            self._waiting.setdefault(partition, leader.proposal_for(proposal.state))
        if self._waiting:
            self._schedule(RETRY_MS)


def _is_current(partition: Partition, proposal: Proposal) -> bool:
    leader = partition.leader
    return leader is not None and leader.isr is proposal.state and leader.epoch == proposal.leader_epoch
