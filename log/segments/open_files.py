"""Open files and loaded indexes, bounded: 10,000 partitions of 20 segments each must not exhaust descriptors and memory.

A `CachedFile` opens itself when it is used and may be closed behind its owner's back when others need the descriptor. Which
one goes is decided by a clock hand (second chance): using a file sets a flag, which costs an attribute and no reordering.
"""

import errno
from collections import deque
from typing import Protocol

from ottla.runtime.disk import Disk, File

OPEN_FILES_MAX = 4096
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
LOADED_INDEX_BYTES_MAX = 64 << 20
_OWNER_BYTES = 1 << 10  # what a segment takes itself that has its indexes loaded, if they have no entry
_CLOSED_MAX = 64  # so many closed files, beside as many as are open, the hand may pass later


class IndexOwner(Protocol):
    """Who has indexes in memory that can be loaded again."""

    def forget_indexes(self) -> None: ...


class CachedFile:
    """A file that is open when it is needed. ``file`` is None while closed; users set ``used`` when they touch it."""

    __slots__ = ("_cache", "_condemned", "_pins", "_queued", "file", "path", "used")

    def __init__(self, cache: "OpenFiles", path: str) -> None:
        self._cache = cache
        self._condemned: File | None = None
        self._pins = 0
        self._queued = False
        self.path = path
        self.file: File | None = None
        self.used = False

    def open(self) -> File:
        """The open file. FileNotFoundError when nobody created it."""
        self.used = True
        file = self.file
        return file if file is not None else self._cache.open(self)

    def create(self) -> File:
        return self._cache.open(self, create=True)

    def pin(self) -> File:
        """The open file, which stays open until `unpin`: for threads, and for syncs that run later."""
        file = self.open()
        self._pins += 1
        return file

    def unpin(self) -> None:
        self._pins -= 1
        if not self._pins and self._condemned is not None:
            self._condemned.close()
            self._condemned = None

    @property
    def pinned(self) -> bool:
        return self._pins > 0

    def close(self) -> None:
        """Closes now, or with the last pin."""
        if self.file is None:
            return
        file, self.file = self.file, None
        self._cache.count -= 1
        if self._pins:
            self._condemned = file
        else:
            file.close()


class OpenFiles:
    """The files that are open: at most ``capacity`` at once, but for pinned ones. ``count`` is how many are open."""

    __slots__ = (
        "_capacity_max",
        "_hand",
        "_index_bytes",
        "_index_owners",
        "capacity",
        "count",
        "disk",
        "index_bytes_max",
    )

    def __init__(
        self, disk: Disk, capacity: int = OPEN_FILES_MAX, *, index_bytes_max: int = LOADED_INDEX_BYTES_MAX
    ) -> None:
        self.disk = disk
        self.capacity = self._capacity_max = capacity
        self.count = 0
        self.index_bytes_max = index_bytes_max
        self._hand: deque[CachedFile] = deque()
        self._index_bytes = 0
        self._index_owners: deque[tuple[IndexOwner, int]] = deque()

    def indexes_loaded(self, owner: IndexOwner, size: int) -> None:
        """Counts indexes that were read from their files, and who has them: it may have gone since, and is kept here. Those loaded first
        are let go of when they grow too many."""
        size += _OWNER_BYTES
        self._index_bytes += size
        self._index_owners.append((owner, size))
        while self._index_bytes > self.index_bytes_max and self._index_owners[0][0] is not owner:
            oldest, freed = self._index_owners.popleft()
            self._index_bytes -= freed
            oldest.forget_indexes()

    def open(self, cached: CachedFile, *, create: bool = False) -> File:
        """Opens ``cached``, closing another first when there is no room."""
        if self.count >= self.capacity:
            self._close_one()
        try:
            file = self.disk.open(cached.path, create=create)
        except OSError as error:
            if error.errno not in _TOO_MANY or self.count < 2:
                raise
            # The process may open fewer than we thought, or others opened many: live with less for a while.
            self.capacity = self.count // 2
            while self.count > self.capacity and self._close_one():
                pass
            file = self.disk.open(cached.path, create=create)
        else:
            self.capacity = min(self.capacity + 1, self._capacity_max)
        cached.file = file
        cached.used = False  # it has to be used again to outlive those that are
        self.count += 1
        if not cached._queued:
            cached._queued = True
            self._hand.append(cached)
            if len(self._hand) > 2 * self.count + _CLOSED_MAX:
                self._drop_closed()
        return file

    def _drop_closed(self) -> None:
        """Where there is room for all, the hand never comes round: segments that went would be kept for ever."""
        for _ in range(len(self._hand)):
            cached = self._hand.popleft()
            cached._queued = cached.file is not None
            if cached._queued:
                self._hand.append(cached)

    def _close_one(self) -> bool:
        """Closes the first file that was not used since the hand last passed it; False when all are pinned."""
        hand = self._hand
        for _ in range(2 * len(hand)):
            cached = hand.popleft()
            if cached.file is None:
                cached._queued = False
            elif cached.used or cached.pinned:
                cached.used = False
                hand.append(cached)
            else:
                cached._queued = False
                cached.close()
                return True
        return False
