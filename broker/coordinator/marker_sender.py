"""Tells the leaders of partitions how transactions ended (WriteTxnMarkers), for as long as it takes."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from ottla.broker.coordinator.decisions.transactions.effects import Marker
from ottla.broker.coordinator.decisions.transactions.marker_queue import (
    NOWHERE,
    Batch,
    MarkerQueue,
    Place,
    Task,
    places_of,
)
from ottla.broker.coordinator.decisions.transactions.transaction import Partitions
from ottla.broker.links.broker_link import BrokerLink, LinkSettings
from ottla.broker.replication.appending import OnCommitted
from ottla.broker.replication.markers import Marker as PartitionMarker
from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.messages.write_txn_markers_request import WriteTxnMarkersRequest
from ottla.broker.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.runtime.errors import KafkaError
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.timers import LoopTimers

WRITE_TXN_MARKERS = BY_NAME["WriteTxnMarkers"].key
VERSIONS = (1, 2)

WriteHere = Callable[[str, int, PartitionMarker, OnCommitted], None]
"""Writes a marker in a partition that this node leads; raises KafkaError if it does not."""

logger = logging.getLogger(__name__)


class MarkerSender:
    """A metadata publisher. What falls into one turn of the loop goes to a broker with one request, or as many as it needs."""

    def __init__(self, config: ServerConfig, image: MetadataImage, timers: LoopTimers, write_here: WriteHere) -> None:
        """``image`` is the node's own, which changes."""
        self._node_id = config.node_id
        self._listener_name = config.inter_broker_listener_name
        self._settings = LinkSettings(
            client_id=f"broker-{config.node_id}-txn-marker-sender",
            stall_ms=config.integer("request.timeout.ms"),
            detours=config.detours,
        )
        self._image = image
        self._timers = timers
        self._write_here = write_here
        self._queue = MarkerQueue(self._leader_of)
        self._links: dict[int, BrokerLink] = {}
        self._in_flight: dict[int, dict[int, Batch]] = {}
        self._requests = 0
        self._done: list[Task] = []
        self._is_planned = self._closed = False

    def send(self, marker: Marker, partitions: Partitions, done: Callable[[], None]) -> "MarkerSending":
        task = Task(marker, places_of(partitions.items()), done)
        if not self._queue.add(task):
            self._done.append(task)
        self._plan()
        return MarkerSending(self, task)

    def cancel(self, task: Task) -> None:
        self._queue.cancel(task)
        if task in self._done:
            self._done.remove(task)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Leaders may have changed, or moved."""
        for broker_id in delta.brokers:
            self._move(broker_id)
        if len(self._queue) and (delta.partitions or delta.deleted_topics or delta.brokers):
            self._done += self._queue.look_again()
            self._plan()

    @property
    def leaderless(self) -> int:
        return self._queue.leaderless()

    def close(self) -> None:
        self._closed = True
        for link in self._links.values():
            link.close()

    # --- turns --------------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        if not self._is_planned and not self._closed:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_planned = False
        for task in self._queue.unsure():
            self._retry_later(task)
        for broker_id in self._queue.brokers():
            self._send_to(broker_id)
        done, self._done = self._done, []
        for task in done:
            task.done()

    def _send_to(self, broker_id: int) -> None:
        if broker_id == self._node_id:
            self._write_some_here()
            return
        link = self._links.get(broker_id) or self._connect(broker_id)
        while link.room > 0 and (batch := self._queue.take(broker_id)) is not None:
            self._request(link, batch)
        # What is left goes with what comes until then, as soon as there is room.

    def _write_some_here(self) -> None:
        """Each partition answers for itself: none waits for another's. What is left is written in the next turn."""
        batch = self._queue.take(self._node_id)
        if batch is None:
            return
        if self._node_id in self._queue.brokers():
            self._plan()
        for task, places in batch.parts:
            marker = PartitionMarker(*task.marker)
            for place in places:
                told = partial(self._told, batch, task, place)
                try:
                    self._write_here(*place, marker, told)
                except KafkaError as error:
                    told(error.code)

    def _told(self, batch: Batch, task: Task, place: Place, code: int) -> None:
        is_over = self._queue.told(batch, task, place, code)
        if is_over:
            self._done.append(task)
            self._plan()
        elif is_over is False:
            self._retry_later(task)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _request(self, link: BrokerLink, batch: Batch) -> None:
        version = link.version(WRITE_TXN_MARKERS, *VERSIONS)
        self._requests += 1
        number = self._requests
        self._in_flight.setdefault(batch.broker_id, {})[number] = batch
        body = b"".join(encoder(WriteTxnMarkersRequest, version)(WriteTxnMarkersRequest(batch.markers())))

        def take(frame: memoryview, position: int) -> None:
            response, _ = decoder(WriteTxnMarkersResponse, version)(frame, position)
            del self._in_flight[batch.broker_id][number]
            link.worked()
            self._answered(batch, response)

        link.request(WRITE_TXN_MARKERS, version, body, take)

    def _answered(self, batch: Batch, response: WriteTxnMarkersResponse) -> None:
        done, failed = self._queue.answered(batch, response)
        self._done += done
        for task in failed:
            self._retry_later(task)
        self._plan()

    def _retry_later(self, task: Task) -> None:
        if task.is_retrying or self._closed:
            return
        task.is_retrying = True

        def retry() -> None:
            task.is_retrying = False
            if task.places and not self._queue.retry(task):
                self._done.append(task)
            self._plan()

        self._timers.call_later_ms(task.backoff_ms, retry)

    # --- links --------------------------------------------------------------------------------------------------------

    def _connect(self, broker_id: int) -> BrokerLink:
        link = self._links[broker_id] = BrokerLink(
            broker_id, self._settings, self._timers, partial(self._up, broker_id), partial(self._lost, broker_id)
        )
        link.move(self._address_of(broker_id))
        link.connect()
        return link

    def _move(self, broker_id: int) -> None:
        link = self._links.get(broker_id)
        if link is not None and link.move(self._address_of(broker_id)):
            self._lost(broker_id, False)

    def _up(self, broker_id: int) -> None:
        link = self._links[broker_id]
        if link.version(WRITE_TXN_MARKERS, *VERSIONS) < 0:
            link.break_off("it knows no transactions: upgrade it")
        else:
            self._plan()

    def _lost(self, broker_id: int, _by_peer: bool) -> None:
        for batch in self._in_flight.pop(broker_id, {}).values():
            self._done += self._queue.lost(batch)
        self._plan()

    # --- metadata -----------------------------------------------------------------------------------------------------

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._image.brokers.get(broker_id)
        return broker.address_on(self._listener_name) if broker is not None else None

    def _leader_of(self, topic: str, index: int) -> int | None:
        view = self._image.topics_by_name.get(topic)
        partition = view.partitions.get(index) if view is not None else None
        if partition is None:
            return None
        return partition.leader if partition.leader in self._image.brokers else NOWHERE


class MarkerSending:
    """See `Sending`."""

    __slots__ = ("_sender", "_task")

    def __init__(self, sender: MarkerSender, task: Task) -> None:
        self._sender = sender
        self._task = task

    @property
    def left(self) -> Mapping[Place, int]:
        return self._task.places

    def cancel(self) -> None:
        self._sender.cancel(self._task)
