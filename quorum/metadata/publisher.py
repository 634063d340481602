"""From committed batches to the image, the store and those who act on changes."""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Protocol

from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch
from ottla.quorum.metadata.delta import MetadataDelta, differences
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.records import decode
from ottla.quorum.metadata.store import ImageStore, stored_position
from ottla.quorum.metadata.transactions import DraftedTransactions
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.snapshots.image_fit import BEGINNING
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.key_value import KeyValueStore
from ottla.runtime.turns import on_thread, over_turns

_logger = logging.getLogger(__name__)


class MetadataPublisher(Protocol):
    """Somebody who acts on what changed in the metadata. Called on the loop, one commit after another; a snapshot comes in
    pieces."""

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
        self.published_offset = self.image.offset
        """The last that every publisher was told of."""
        self.on_published: Callable[[], None] | None = None
        """Called each time that this was set."""
        self._confirmed = False
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
    def applied(self) -> OffsetAndEpoch:
        """Where the image ends, and the epoch of the last record in it."""
        return OffsetAndEpoch(self.next_offset, self.image.epoch) if self.image.offset >= 0 else BEGINNING

    @property
    def confirmed_offset(self) -> int:
        """`published_offset` once that is known to be of the log as it is now; -1 before."""
        return self.published_offset if self._confirmed else -1

    @property
    def in_transaction(self) -> bool:
        """Whether the committed log ends inside a transaction; a new controller aborts it."""
        return self._transactions.is_open

    @property
    def unsynced(self) -> int:
        """Pairs that wait to be made durable (`sync`)."""
        return self._store.unsynced

    def add_publisher(self, publisher: MetadataPublisher) -> None:
        """Adds one that does not act on topics. Tells it everything else at once, and from then on each change, after those who
        were added before it."""
        self._tell(publisher, next(differences(MetadataImage(), self.image)))
        self.follow(publisher)

    def follow(self, publisher: MetadataPublisher) -> None:
        """Tells it each change from now on."""
        self._publishers.append(publisher)

    def introduce(self, publisher: MetadataPublisher) -> Iterator[None]:
        """`add_publisher` with topics, a piece at a time, the first at once. To be read to its end; between two pieces the loop
        may do other things, commits too: what a piece tells of is to be looked up in the image anyway."""
        fork = self.image.fork()
        self.add_publisher(publisher)
        for delta in islice(differences(MetadataImage(), fork), 1, None):
            yield
            if not delta.is_empty:
                self._tell(publisher, delta)

    def on_reached(self, offset: int, callback: Callable[[], None]) -> None:
        """Calls back once the publishers were told of everything up to ``offset``; at once if they were. What the store held at the
        start may be of a history that is gone, and does not count before it is confirmed."""
        if self.confirmed_offset >= offset:
            callback()
        else:
            self._reached.append((offset, callback))

    def on_commit(self, batch: CommittedBatch) -> None:
        """Raises UnreadableRecordError or KafkaError (UNSUPPORTED_VERSION): then this node cannot follow the log any more."""
        self._confirmed = True
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

    def on_confirmed(self) -> None:
        """What the image was loaded from, or rebuilt from, is committed."""
        self._confirmed = True
        self._call_reached()

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None:
        """Replaces the image by a received one, or by an empty one: it is read over turns of the loop, the store is replaced on a thread, then the
        image at once, and the publishers are told over turns of the loop. Nothing may be committed meanwhile. Raises
        StoreFormatError, OSError, ValueError when it is not that; then everything is as it was."""
        image = MetadataImage()
        if store_path is None:
            await on_thread(self._store.clear)
            await over_turns(self._take_over(image))
            return
        assert self._open_store is not None, "snapshots need open_store"
        received = self._open_store(store_path)
        try:
            if stored_position(received) is None:
                raise ValueError(
                    f"the snapshot at {store_path} holds nothing: its file was removed, and made anew as it was opened"
                )
            await over_turns(ImageStore(received).load_into(image))
        finally:
            received.close()
        if image.offset >= offset:
            raise ValueError(f"the snapshot at {store_path} ends at {image.offset}, not below {offset}")
        image.offset, image.epoch = offset - 1, epoch  # its last records may be control records, which no image sees
        self._check_features(image)
        await on_thread(partial(self._store.restore, store_path, image))
        await over_turns(self._take_over(image))

    def _take_over(self, image: MetadataImage) -> Iterator[None]:
        before = self.image.fork()
        self._transactions.forget()
        self.image.become(image)
        for delta in differences(before, self.image):
            self._tell_all(delta)
            yield
        self._published()
        yield from before.dissolve()

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
        self._tell_all(delta)
        self._published()

    def _tell_all(self, delta: MetadataDelta) -> None:
        if not delta.is_empty:
            for publisher in self._publishers:
                self._tell(publisher, delta)

    def _tell(self, publisher: MetadataPublisher, delta: MetadataDelta) -> None:
        try:
            publisher.publish(delta, self.image)
        except Exception:
            self.failures += 1
            _logger.exception("%s failed at metadata offset %d", type(publisher).__name__, self.image.offset)

    def _published(self) -> None:
        self.published_offset = self.image.offset
        if self.on_published is not None:
            self.on_published()
        if self._reached:
            self._call_reached()

    def _call_reached(self) -> None:
        reached = self.confirmed_offset
        due = [callback for offset, callback in self._reached if offset <= reached]
        self._reached = [(offset, callback) for offset, callback in self._reached if offset > reached]
        for callback in due:
            callback()

    def sync(self) -> None:
        """Makes the store durable as far as it is written; on any thread. Bounds what a restart replays."""
        self._store.sync()

    def close(self) -> None:
        self._store.close()
