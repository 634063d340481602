"""Snapshots on disk: a copy of the image's store each, beside the log.

``<20-digit end offset>-<10-digit epoch>.checkpoint`` holds the bytes; ``….checkpoint.json`` says how many they are, their
CRC-32C, and who voted at that offset. The second file is written last, so a snapshot without it was never finished and is
removed at the next start, as is a ``.part``.
"""

from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.voters import VoterSet
from ottla.runtime.disk import Disk

SUFFIX = ".checkpoint"
_DESCRIPTION = ".json"
_TAKING = "taking" + SUFFIX + ".part"
_RECEIVING = "receiving" + SUFFIX + ".part"
_CHUNK_BYTES = 1 << 20


class SnapshotDescription(msgspec.Struct, frozen=True):
    """``checksum`` is CRC-32C over ``size`` bytes; ``voters`` None when only the configuration ever named them."""

    size: int
    checksum: int
    voters: VoterSet | None = None


class SnapshotFiles:
    """The snapshots of one directory, oldest first. Methods raise OSError when the disk does."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._descriptions: dict[OffsetAndEpoch, SnapshotDescription] = {}
        self._received_checksum = 0
        self._load()

    # --- what there is ------------------------------------------------------------------------------------------------

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return max(self._descriptions, default=None)

    def at_or_after(self, offset: int) -> OffsetAndEpoch | None:
        """The oldest snapshot that ends at ``offset`` or later."""
        return min((snapshot for snapshot in self._descriptions if snapshot.offset >= offset), default=None)

    def before(self, snapshot: OffsetAndEpoch) -> OffsetAndEpoch | None:
        """The newest one older than ``snapshot``."""
        return max((other for other in self._descriptions if other < snapshot), default=None)

    def describe(self, snapshot: OffsetAndEpoch) -> SnapshotDescription | None:
        return self._descriptions.get(snapshot)

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return self._at(f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}")

    def read(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        file = self._disk.open(self.path(snapshot), writable=False)
        try:
            return file.read_at(max_bytes, position)
        finally:
            file.close()

    # --- taking one ---------------------------------------------------------------------------------------------------

    @property
    def taking_path(self) -> str:
        """Where the application copies its store to."""
        return self._at(_TAKING)

    def discard_taken(self) -> None:
        self._remove(self.taking_path)

    def measure(self) -> SnapshotDescription:
        """Size and checksum of what was copied, made durable. Reads all of it: on a thread."""
        size = checksum = 0
        for chunk in self._chunks(self.taking_path):
            size += len(chunk)
            checksum = crc32c(chunk, checksum)
        self._sync(self.taking_path)
        return SnapshotDescription(size, checksum)

    def keep_taken(self, snapshot: OffsetAndEpoch, description: SnapshotDescription) -> None:
        self._freeze(self.taking_path, snapshot, description)

    # --- receiving one ------------------------------------------------------------------------------------------------

    def receive(self, position: int, data: bytes) -> None:
        """Writes a piece; position 0 begins anew. Pieces come in order."""
        path = self._at(_RECEIVING)
        if position == 0:
            self._remove(path)
            self._received_checksum = 0
        file = self._disk.open(path, create=True)
        try:
            file.write_at([data], position)
        finally:
            file.close()
        self._received_checksum = crc32c(data, self._received_checksum)

    def keep_received(self, snapshot: OffsetAndEpoch, description: SnapshotDescription) -> bool:
        """Durable and usable from here on; False, and nothing kept, when it is not what was promised."""
        path = self._at(_RECEIVING)
        size = self._size(path)
        if (size, self._received_checksum) != (description.size, description.checksum):
            self._remove(path)
            return False
        self._sync(path)
        self._freeze(path, snapshot, description)
        return True

    def remove_older(self, than: OffsetAndEpoch) -> None:
        for snapshot in [snapshot for snapshot in self._descriptions if snapshot < than]:
            del self._descriptions[snapshot]
            self._remove(self.path(snapshot) + _DESCRIPTION)
            self._remove(self.path(snapshot))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _at(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _load(self) -> None:
        """Takes stock; unfinished business of an earlier life is removed."""
        names = [name for name in self._disk.list_directory(self._directory) if SUFFIX in name]
        for name in names:
            if name.endswith(SUFFIX):
                self._take_stock(name)
        known = {self.path(snapshot).rsplit("/", 1)[1] for snapshot in self._descriptions}
        for name in names:
            if name.removesuffix(_DESCRIPTION) not in known:
                self._disk.unlink(self._at(name))

    def _take_stock(self, name: str) -> None:
        path = self._at(name)
        offset, _, epoch = name.removesuffix(SUFFIX).partition("-")
        if not (offset.isdigit() and epoch.isdigit() and self._disk.exists(path + _DESCRIPTION)):
            return
        try:
            description = msgspec.json.decode(self._disk.read_bytes(path + _DESCRIPTION), type=SnapshotDescription)
        except msgspec.MsgspecError:
            return
        if self._size(path) == description.size:
            self._descriptions[OffsetAndEpoch(int(offset), int(epoch))] = description

    def _freeze(self, path: str, snapshot: OffsetAndEpoch, description: SnapshotDescription) -> None:
        target = self.path(snapshot)
        self._disk.rename(path, target)
        self._disk.sync_directory(self._directory)
        self._disk.write_atomically(target + _DESCRIPTION, msgspec.json.encode(description))
        self._remove(path + "-lock")  # LMDB's, from looking into the copy
        self._descriptions[snapshot] = description

    def _chunks(self, path: str) -> Iterator[bytes]:
        file = self._disk.open(path, writable=False)
        try:
            position = 0
            while chunk := file.read_at(_CHUNK_BYTES, position):
                yield chunk
                position += len(chunk)
        finally:
            file.close()

    def _size(self, path: str) -> int:
        if not self._disk.exists(path):
            return -1
        file = self._disk.open(path, writable=False)
        try:
            return file.size()
        finally:
            file.close()

    def _sync(self, path: str) -> None:
        file = self._disk.open(path)
        try:
            file.sync()
        finally:
            file.close()

    def _remove(self, path: str) -> None:
        if self._disk.exists(path):
            self._disk.unlink(path)
