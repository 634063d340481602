"""The least application of a quorum: it remembers what was committed, and its snapshot is just that."""

import msgspec

from ottla.quorum.listener import CommittedBatch, LeaderAndEpoch
from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.runtime.disk import Disk


class Memory(msgspec.Struct):
    """The last offset applied, its epoch, and the records so far."""

    offset: int = -1
    epoch: int = -1
    records: list[bytes] = msgspec.field(default_factory=list)


class StateMachine:
    """`QuorumListener` and `SnapshotSource`. What it knows is lost with it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.memory = Memory()
        self.snapshots: list[int] = []  # offsets at which it was given one
        self.leaders: list[LeaderAndEpoch] = []

    def on_commit(self, batch: CommittedBatch) -> None:
        self.memory.records += batch.records
        self.memory.offset, self.memory.epoch = batch.last_offset, batch.epoch

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)

    def on_confirmed(self) -> None: ...

    async def on_snapshot(self, store_path: str | None, offset: int, epoch: int) -> None:
        if store_path is None:
            self.memory = Memory()
            return
        self.memory = msgspec.msgpack.decode(self._disk.read_bytes(store_path), type=Memory)
        assert (self.memory.offset + 1, self.memory.epoch) == (offset, epoch)
        self.snapshots.append(offset)

    def copy_to(self, path: str) -> OffsetAndEpoch | None:
        self._disk.write_atomically(path, msgspec.msgpack.encode(self.memory))
        return OffsetAndEpoch(self.memory.offset + 1, self.memory.epoch) if self.memory.offset >= 0 else None
