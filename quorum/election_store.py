"""The election state in the key-value store: written durably before it takes effect."""

import struct

import msgspec
from crc32c import crc32c

from ottla.quorum.raft.election_state import ElectionState
from ottla.runtime.key_value import DamagedStoreError, KeyValueStore

KEY = b"quorum/election"
_FORMAT = b"\x01"
_CHECKSUM = struct.Struct(">I")
_BODY_AT = len(_FORMAT) + _CHECKSUM.size


class QuorumStateError(ValueError):
    """What this node promised the others cannot be read: it may not promise again."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the quorum-state in the metadata directory cannot be used: {reason}. Whom this node voted for is not "
            "known. While most of the other voters are well, take this one out with ottla quorum remove-controller and let it "
            "join anew with an empty directory; else restore the file"
        )


def read_promise(store: KeyValueStore, key: bytes) -> bytes | None:
    """What is kept under ``key``. Raises QuorumStateError."""
    try:
        return store.get(key)
    except DamagedStoreError as error:
        raise QuorumStateError(str(error)) from error


class ElectionStore:
    """The election state under one key, with a checksum over the state and whose it is. OSError of a write passes through:
    a node that cannot keep its vote must not cast it."""

    def __init__(self, store: KeyValueStore, cluster_id: str, node_id: int) -> None:
        self._store = store
        self._owner = crc32c(f"{cluster_id} {node_id}".encode())

    def load(self, log_end: int) -> ElectionState:
        """The state as last saved; the primordial one (epoch 0) if none was. Raises QuorumStateError, also for none beside a log that
        is not empty: in some epoch it was written."""
        data = read_promise(self._store, KEY)
        if data is None:
            if log_end > 0:
                raise QuorumStateError("there is none, and the metadata log is not empty")
            return ElectionState()
        body = data[_BODY_AT:]
        if data[:1] != _FORMAT or data[1:_BODY_AT] != self._checksum(body):
            raise QuorumStateError("it is damaged, or another node's")
        try:
            return msgspec.msgpack.decode(body, type=ElectionState)
        except msgspec.MsgspecError as error:
            raise QuorumStateError(f"it is damaged: {error}") from error

    def save(self, state: ElectionState) -> None:
        """Returns when the state survives a crash."""
        body = msgspec.msgpack.encode(state)
        self._store.write([(KEY, _FORMAT + self._checksum(body) + body)], durable=True)

    def _checksum(self, body: bytes) -> bytes:
        return _CHECKSUM.pack(crc32c(body, self._owner))
