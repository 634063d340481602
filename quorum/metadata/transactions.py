"""Transactions of the metadata log: records between a beginning and an end count together, or not at all."""

from typing import Generic, TypeVar

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.metadata.image import UnreadableRecordError

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

    def forget(self) -> None:
        """A snapshot took the place of what was read."""
        self._held = None
