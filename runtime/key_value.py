"""A small ordered store of bytes with atomic writes. Holds the election state and the metadata image."""

from collections.abc import Iterable, Iterator
from typing import Protocol

Pair = tuple[bytes, bytes]


class DamagedStoreError(OSError):
    """The file is not what was written to it."""


class KeyValueStore(Protocol):
    """Sorted keys, one atomic transaction per `write`.

    A write that is not durable is seen at once by every reader of this object, and after a crash it is there whole or
    not at all, with everything written before it. Keys are 1 to 511 bytes. OSError when the disk fails, DamagedStoreError when
    it was lying.
    """

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes = b"") -> Iterator[Pair]:
        """The pairs whose key starts with ``prefix``, in key order. Nothing may be written until it has ended."""
        ...

    def write(self, puts: Iterable[Pair], deletes: Iterable[bytes] = (), *, durable: bool) -> None:
        """Applies ``deletes``, then ``puts``. ``durable``: it and all earlier writes survive a crash once this returns."""
        ...

    def sync(self) -> None:
        """Makes every earlier write durable. May run on another thread than the writes."""
        ...

    def clear(self) -> None:
        """Empties the store, durably. May run on another thread, while nobody else reads or writes."""
        ...

    def copy_to(self, path: str) -> None:
        """A compact, durable copy in a new file, that the same kind of store opens. Includes every earlier write."""
        ...

    def restore(self, path: str) -> None:
        """Holds what the copy in the file at ``path`` does, and nothing else, durably. The file stays as it is. After a crash in
        between the store is as it was before or afterwards."""
        ...

    def close(self) -> None:
        """Makes earlier writes durable and lets go of the file."""
        ...
