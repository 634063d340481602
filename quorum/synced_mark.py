"""How far the metadata log was on stable storage, kept beside the vote: both are what others rely on.

A crash may tear the end of a log, and a start cuts what is torn. Damage further up looks the same, and must not be treated the
same: a voter that forgets records it acknowledged can elect a leader without them, and what was committed is gone without a
word. So a voter knows, apart from its log, below which offset nothing may be missing (Alagappan et al., Protocol-Aware
Recovery, FAST '18).
"""

import struct

from ottla.quorum.election_store import QuorumStateError, read_promise
from ottla.runtime.key_value import KeyValueStore

KEY = b"quorum/log-synced"
_OFFSET = struct.Struct(">q")


class SyncedMark:
    """Up to where the log is known to be stable. It may be some seconds behind: it becomes durable with the next write that
    is (the vote's, or the store's own sync now and then). From the first record on there is one."""

    def __init__(self, store: KeyValueStore) -> None:
        """Raises QuorumStateError."""
        self._store = store
        data = read_promise(store, KEY)
        if data is not None and len(data) != _OFFSET.size:
            raise QuorumStateError("the mark of the synced log is damaged")
        self.offset: int = 0 if data is None else _OFFSET.unpack(data)[0]

    def begin(self, offset: int) -> None:
        """`raise_to` at a start, durably."""
        self._write(max(offset, self.offset), durable=True)

    def raise_to(self, offset: int) -> None:
        """Everything below ``offset`` is on stable storage."""
        if offset > self.offset:
            self._write(offset, durable=self.offset == 0)

    def cut_at(self, offset: int) -> None:
        """The log is about to be cut at ``offset``, which may pass through an empty one: durably, before anything goes. 0: it is about to be
        begun anew elsewhere, and has no segment for a moment, which a start takes for an end at 0."""
        if offset < self.offset:
            self._write(0, durable=True)

    def _write(self, offset: int, *, durable: bool) -> None:
        self.offset = offset
        self._store.write([(KEY, _OFFSET.pack(offset))], durable=durable)
