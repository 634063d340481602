"""Snapshots on disk: a copy of the image's store each, beside the log.

``<20-digit end offset>-<10-digit epoch>.checkpoint`` holds the bytes; ``….checkpoint.json`` says how many they are, their
CRC-32C, and who voted at that offset. The description is written first; the rename that gives the bytes their name makes the
snapshot, all at once. So what a crash leaves behind is a ``.part`` or a description alone, and the next start removes it. A
checkpoint without a description is not ours (Kafka's are called the same): it is left alone and not used.
"""

import logging
from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from ottla.quorum.raft.log_summary import OffsetAndEpoch
from ottla.quorum.raft.voters import VoterSet
from ottla.runtime.disk import Disk

SUFFIX = ".checkpoint"
_DESCRIPTION = ".json"
_LOCK = "-lock"  # LMDB's, from looking into a snapshot
_TAKING = "taking" + SUFFIX + ".part"
_RECEIVING = "receiving" + SUFFIX + ".part"
_REMAINS = (".part", ".tmp", _LOCK)
_CHUNK_BYTES = 1 << 20

_logger = logging.getLogger(__name__)


class SnapshotDescription(msgspec.Struct, frozen=True):
    """What is said of a snapshot beside its bytes. ``checksum`` is CRC-32C over ``size`` bytes; ``voters`` None when only
    the configuration ever named them; ``mark`` of its epoch (see LogSummary), 0 where that is not known."""

    size: int
    checksum: int
    voters: VoterSet | None = None
    mark: int = 0


class SnapshotFiles:
    """The snapshots of one directory, oldest first. Methods raise OSError when the disk does.

    Those marked so may run on a thread while the others run on the loop; what there is changes on the loop only.
    """

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

    def all(self) -> list[OffsetAndEpoch]:
        return sorted(self._descriptions)

    def at_or_after(self, offset: int) -> OffsetAndEpoch | None:
        """The oldest snapshot that ends at ``offset`` or later; of two that end there, the one that `latest` would name."""
        found = (snapshot for snapshot in self._descriptions if snapshot.offset >= offset)
        return min(found, key=lambda snapshot: (snapshot.offset, -snapshot.epoch), default=None)

    def describe(self, snapshot: OffsetAndEpoch) -> SnapshotDescription | None:
        return self._descriptions.get(snapshot)

    def made_ms(self, snapshot: OffsetAndEpoch) -> int:
        """When its bytes were written, since 1970; 0 when somebody removed them by hand."""
        path = self.path(snapshot)
        return self._disk.modified_ms(path) if self._disk.exists(path) else 0

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return self._at(f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}")

    def read(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        """Bytes of a snapshot. On any thread; FileNotFoundError when it was removed meanwhile."""
        file = self._disk.open(self.path(snapshot), writable=False)
        try:
            return file.read_at(max_bytes, position)
        finally:
            file.close()

    def is_sound(self, snapshot: OffsetAndEpoch) -> bool:
        """Whether its bytes still are what they were. Reads all of them."""
        description = self._descriptions[snapshot]
        return self._measure(self.path(snapshot)) == (description.size, description.checksum)

    # --- taking one ---------------------------------------------------------------------------------------------------

    @property
    def taking_path(self) -> str:
        """Where the application copies its store to."""
        return self._at(_TAKING)

    def discard_taken(self) -> None:
        """Removes what was copied and is not wanted. On any thread."""
        self._remove(self.taking_path + _LOCK)
        self._remove(self.taking_path)

    def measure(self) -> SnapshotDescription:
        """Size and checksum of what was copied, made durable. Reads all of it: on a thread."""
        size, checksum = self._measure(self.taking_path)
        self._sync(self.taking_path)
        return SnapshotDescription(size, checksum)

    def freeze_taken(self, snapshot: OffsetAndEpoch, description: SnapshotDescription) -> None:
        """Makes the copy durable: from here on it survives a crash; it counts once it is told to `add`. On a thread."""
        self._freeze(self.taking_path, snapshot, description)
        self._remove(self.taking_path + _LOCK)

    def add(self, snapshot: OffsetAndEpoch, description: SnapshotDescription) -> None:
        """Counts another snapshot."""
        self._descriptions[snapshot] = description

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
            file.start_writeback(position, len(data))  # or the sync at the end would have all of it to write
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
        self.discard_beyond(snapshot.offset)
        self._freeze(path, snapshot, description)
        self.add(snapshot, description)
        # Only now: the log may begin where it ends, until it is emptied.
        self._discard([other for other in self._descriptions if other.offset == snapshot.offset and other != snapshot])
        return True

    # --- removing them ------------------------------------------------------------------------------------------------

    def remove_older(self, than: OffsetAndEpoch) -> None:
        for snapshot in [snapshot for snapshot in self._descriptions if snapshot < than]:
            del self._descriptions[snapshot]
            self.remove_files(snapshot)

    def discard_beyond(self, offset: int) -> None:
        """The log is about to be cut there, or to go on there after another snapshot: those that end later are of a history that is
        gone, durably before it goes, or a start would take them for what the log is to go on after."""
        self._discard([snapshot for snapshot in self._descriptions if snapshot.offset > offset])

    def _discard(self, gone: list[OffsetAndEpoch]) -> None:
        """Durably."""
        for snapshot in gone:
            del self._descriptions[snapshot]
            self.remove_files(snapshot)
        if gone:
            self._disk.sync_directory(self._directory)

    def remove_files(self, snapshot: OffsetAndEpoch) -> None:
        """Removes a snapshot, the description last: what is left after a crash in between is known for a remainder."""
        path = self.path(snapshot)
        for name in (path, path + _LOCK, path + _DESCRIPTION):
            self._remove(name)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _at(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _load(self) -> None:
        """Takes stock; unfinished business of an earlier life is removed."""
        names = [name for name in self._disk.list_directory(self._directory) if SUFFIX in name]
        for name in names:
            described = name.removesuffix(_DESCRIPTION)
            if name.endswith(_REMAINS) or (name.endswith(_DESCRIPTION) and described not in names):
                self._disk.unlink(self._at(name))
            elif name.endswith(SUFFIX) and not self._take_stock(name):
                _logger.warning("%s is not a snapshot of this program, or damaged: it is not used", self._at(name))

    def _take_stock(self, name: str) -> bool:
        path = self._at(name)
        offset, _, epoch = name.removesuffix(SUFFIX).partition("-")
        if not (offset.isdigit() and epoch.isdigit() and self._disk.exists(path + _DESCRIPTION)):
            return False
        try:
            description = msgspec.json.decode(self._disk.read_bytes(path + _DESCRIPTION), type=SnapshotDescription)
        except msgspec.MsgspecError:
            return False
        if self._size(path) != description.size:
            return False
        self.add(OffsetAndEpoch(int(offset), int(epoch)), description)
        return True

    def _freeze(self, path: str, snapshot: OffsetAndEpoch, description: SnapshotDescription) -> None:
        target = self.path(snapshot)
        self._disk.write_atomically(target + _DESCRIPTION, msgspec.json.encode(description))
        self._disk.rename(path, target)
        self._disk.sync_directory(self._directory)

    def _measure(self, path: str) -> tuple[int, int]:
        size = checksum = 0
        for chunk in self._chunks(path):
            size += len(chunk)
            checksum = crc32c(chunk, checksum)
        return size, checksum

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
