"""Transactions of the metadata log: records between a beginning and an end count together, or not at all."""

from collections.abc import Iterable
from typing import Generic, TypeVar

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.image import MetadataImage, UnreadableRecordError

T = TypeVar("T")


class Transactions(Generic[T]):
    """Lets records through when they take effect. What is let through is the caller's: a record, or more about it."""

    def __init__(self) -> None:
        self._held: list[T] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._held is not None

    def take(self, record: pb.MetadataRecord, item: T) -> list[T]:
        """What takes effect now that ``record`` was read; ``item`` stands for it. Raises UnreadableRecordError."""
        kind = record.WhichOneof("body")
        if kind == "begin_transaction":
            if self._held is not None:
                raise UnreadableRecordError("a transaction begins inside another")
            self._held = []
            return []
        if kind in ("end_transaction", "abort_transaction"):
            if self._held is None:
                raise UnreadableRecordError("a transaction ends that did not begin")
            held, self._held = self._held, None
            return held if kind == "end_transaction" else []
        if self._held is None:
            return [item]
        self._held.append(item)
        return []


class DraftedTransactions:
    """Applies records to an image; those of a transaction to a fork of it as they come, so that the end of a large one
    costs no more than its beginning."""

    def __init__(self) -> None:
        self._draft: tuple[MetadataImage, MetadataDelta] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._draft is not None

    def apply(self, image: MetadataImage, records: Iterable[pb.MetadataRecord]) -> MetadataDelta | None:
        """What changed in ``image`` by one batch; None: a transaction is open, and nothing did. Raises
        UnreadableRecordError."""
        delta = MetadataDelta()
        for record in records:
            kind = record.WhichOneof("body")
            if kind == "begin_transaction":
                assert delta.is_empty, "the controller gives a transaction batches of its own"
                if self._draft is not None:
                    raise UnreadableRecordError("a transaction begins inside another")
                self._draft = image.fork(), MetadataDelta()
            elif kind in ("end_transaction", "abort_transaction"):
                if self._draft is None:
                    raise UnreadableRecordError("a transaction ends that did not begin")
                if kind == "end_transaction":
                    image.become(self._draft[0])
                    delta = self._draft[1]
                self._draft = None
            elif self._draft is not None:
                self._draft[0].apply(record, self._draft[1])
            else:
                image.apply(record, delta)
        return None if self._draft is not None else delta

    def forget(self) -> None:
        """A snapshot took the place of what was read."""
        self._draft = None
