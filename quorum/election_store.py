"""The election state in the key-value store: written durably before it takes effect."""

import msgspec

from ottla.quorum.raft.election_state import ElectionState
from ottla.runtime.key_value import KeyValueStore

KEY = b"quorum/election"


class ElectionStore:
    """One key. OSError of the store passes through: a node that cannot keep its vote must not cast it."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store

    def load(self) -> ElectionState:
        """The state as last saved; the primordial one (epoch 0) if none was. Raises ValueError when it cannot be read."""
        data = self._store.get(KEY)
        if data is None:
            return ElectionState()
        try:
            return msgspec.msgpack.decode(data, type=ElectionState)
        except msgspec.MsgspecError as error:
            raise ValueError(f"the election state is damaged: {error}") from error

    def save(self, state: ElectionState) -> None:
        """Returns when the state survives a crash."""
        self._store.write([(KEY, msgspec.msgpack.encode(state))], durable=True)
