"""From committed batches to the image, the store and those who act on changes."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.records import decode
from ottla.quorum.metadata.store import ImageStore
from ottla.quorum.metadata.transactions import DraftedTransactions
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.key_value import KeyValueStore

_logger = logging.getLogger(__name__)


class MetadataPublisher(Protocol):
    """Acts on what changed. Called on the loop, one commit after another."""

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """``image`` already is the new one. An exception is logged and keeps nobody else from being told."""
        ...


class MetadataLoader:
    """`QuorumListener` that keeps the image and its store at the last committed record, and tells the publishers.

    Records of a transaction are applied to a draft until its end: the image and the store stay where they were before it
    began, so that a restart in the middle reads it from its beginning again.
    """

    def __init__(
        self,
        store: KeyValueStore,
        open_store: Callable[[str], KeyValueStore] | None = None,
        reads: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """Loads what ``store`` holds (alone: see `ImageStore`). ``open_store`` opens the file of a received snapshot.
        ``reads``: lowest and highest level of each feature that this node reads. Raises KafkaError (UNSUPPORTED_VERSION)
        when the cluster is beyond that."""
        self._store = ImageStore(store)
        self._open_store = open_store
        self._reads = reads
        self.image = self._store.load()
        self._check_features(self.image)
        self._publishers: list[MetadataPublisher] = []
        self._reached: list[tuple[int, Callable[[], None]]] = []
        self._transactions = DraftedTransactions()
        self.applied_ms = 0  # when the last batch that was applied was appended; since 1970
        self.failures = 0  # of publishers

    @property
    def next_offset(self) -> int:
        """The first offset that is not in the image: where the delivery has to begin."""
        return self.image.offset + 1

    @property
    def in_transaction(self) -> bool:
        """Whether the committed log ends inside a transaction; a new controller aborts it."""
        return self._transactions.is_open

    @property
    def unsynced(self) -> int:
        """Pairs that wait to be made durable (`sync`)."""
        return self._store.unsynced

    def add_publisher(self, publisher: MetadataPublisher) -> None:
        """Tells it everything there is at once, and from then on each change, after those who were added before it."""
        self._publish_to(publisher, MetadataDelta.everything(self.image))
        self.follow(publisher)

    def follow(self, publisher: MetadataPublisher) -> None:
        """Tells it each change from now on."""
        self._publishers.append(publisher)

    def on_reached(self, offset: int, callback: Callable[[], None]) -> None:
        """Calls back once the image stands at ``offset`` or later, after the publishers were told; at once if it does."""
        if self.image.offset >= offset:
            callback()
        else:
            self._reached.append((offset, callback))

    def on_commit(self, batch: CommittedBatch) -> None:
        """Raises UnreadableRecordError or KafkaError (UNSUPPORTED_VERSION): then this node cannot follow the log any more."""
        delta = self._transactions.apply(self.image, map(decode, batch.records))
        if delta is None:
            return
        if delta.features:
            self._check_features(self.image)
        self.image.offset, self.image.epoch = batch.last_offset, batch.epoch
        self.applied_ms = batch.append_time_ms
        if batch.records:
            self._store.write(delta, self.image)
        self._publish(delta)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Who leads does not matter to the image."""

    def on_snapshot(self, store_path: str, offset: int, epoch: int) -> None:
        """Replaces the image by a received one. Raises StoreFormatError, OSError, ValueError when it is not that."""
        assert self._open_store is not None, "snapshots need open_store"
        received = self._open_store(store_path)
        try:
            image = ImageStore(received).load()
        finally:
            received.close()
        if image.offset >= offset:
            raise ValueError(f"the snapshot at {store_path} ends at {image.offset}, not below {offset}")
        image.offset, image.epoch = offset - 1, epoch  # its last records may be control records, which no image sees
        self._check_features(image)
        delta = MetadataDelta.between(self.image, image)
        self._transactions.forget()
        self._store.restore(store_path, image)
        self.image.become(image)
        self._publish(delta)

    def _check_features(self, image: MetadataImage) -> None:
        """An older node that is started in a newer cluster stops before it meets what it cannot read."""
        for name, level in image.features.items():
            lowest, highest = (0, level) if self._reads is None else self._reads.get(name, (0, 0))
            if not lowest <= level <= highest:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the cluster uses {name} at level {level} and this node reads {lowest} to {highest}: upgrade it",
                )

    def _publish(self, delta: MetadataDelta) -> None:
        if not delta.is_empty:
            for publisher in self._publishers:
                self._publish_to(publisher, delta)
        if self._reached:
            self._call_reached()

    def _publish_to(self, publisher: MetadataPublisher, delta: MetadataDelta) -> None:
        try:
            publisher.publish(delta, self.image)
        except Exception:
            self.failures += 1
            _logger.exception("%s failed at metadata offset %d", type(publisher).__name__, self.image.offset)

    def _call_reached(self) -> None:
        due = [callback for offset, callback in self._reached if offset <= self.image.offset]
        self._reached = [each for each in self._reached if each[0] > self.image.offset]
        for callback in due:
            callback()

    def sync(self) -> None:
        """Makes the store durable as far as it is written; on any thread. Bounds what a restart replays."""
        self._store.sync()

    def close(self) -> None:
        self._store.close()
