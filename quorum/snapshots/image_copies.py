"""Snapshots of the metadata image: compact copies of the store it is kept in."""

from collections.abc import Callable

from ottla.quorum.metadata.store import stored_position
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.runtime.key_value import KeyValueStore


class ImageSnapshots:
    """`SnapshotSource` over the image's store, which goes on taking commits while it is copied."""

    def __init__(self, store: KeyValueStore, open_store: Callable[[str], KeyValueStore]) -> None:
        self._store = store
        self._open_store = open_store

    def copy_to(self, path: str) -> OffsetAndEpoch | None:
        """Copies the store; answers where the copy stands, read from the copy itself: the store moved on meanwhile. None:
        nothing was stored yet."""
        self._store.copy_to(path)
        copy = self._open_store(path)
        try:
            position = stored_position(copy)
        finally:
            copy.close()
        return OffsetAndEpoch(position[0] + 1, position[1]) if position is not None else None
