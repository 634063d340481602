"""A file's bytes, as the program sees them and as they would be after a power cut."""

from random import Random

PAGE_BYTES = 4096


class Inode:
    """``data`` is the page cache: what reads answer. What the last sync promised is kept as the difference to it.

    Bytes beyond ``_durable_size`` are unsynced; below it, ``_overwritten`` holds the promised contents of every page
    that was changed since. ``_dropped`` pages were dirty when a sync failed: the kernel calls them clean, reads show
    them, and no later sync writes them ("fsyncgate"), unless they are written again.
    """

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = modified_ms
        self._durable_size = 0
        self._overwritten: dict[int, bytes] = {}
        self._dropped: dict[int, None] = {}
        self._last_write = (0, 0)

    def write(self, data: bytes, offset: int) -> None:
        if offset < self._durable_size:
            self._remember(offset, offset + len(data))
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data
        if self._dropped:
            for page in _pages(offset, offset + len(data)):
                self._dropped.pop(page, None)
        self._last_write = (offset, offset + len(data))

    def truncate(self, size: int) -> None:
        self._remember(size, self._durable_size)
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def sync(self) -> None:
        promised = {page: self._overwritten.get(page, b"") for page in self._dropped}
        self._durable_size = len(self.data)
        self._overwritten = promised
        self._last_write = (0, 0)

    def sync_failed(self) -> None:
        """The disk refused: what was unsynced will never be written, and no later sync will say so."""
        self._dropped.update(dict.fromkeys([*self._overwritten, *_pages(self._durable_size, len(self.data))]))

    def _remember(self, start: int, end: int) -> None:
        """Keeps the promised contents of the pages of a range before they change for the first time."""
        end = min(end, self._durable_size)
        for page in _pages(start, end):
            if page not in self._overwritten:
                first = page * PAGE_BYTES
                self._overwritten[page] = bytes(self.data[first : min(first + PAGE_BYTES, self._durable_size)])

    @property
    def dirty(self) -> bool:
        """Something would be lost."""
        return bool(self._overwritten) or len(self.data) != self._durable_size

    def power_loss(self, rng: Random) -> None:
        """Unsynced changes are lost, kept, kept but for the end of the last one, or kept page by page: ``rng`` decides."""
        if self.dirty:
            fate = rng.choice((self._lose, _keep, self._tear, self._scatter))
            fate(rng)
        self._dropped.clear()
        self.sync()

    def _promised(self) -> bytearray:
        old = bytearray(self.data[: self._durable_size].ljust(self._durable_size, b"\0"))
        for page, contents in self._overwritten.items():
            first, last = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, len(old))
            old[first:last] = contents[: max(0, last - first)].ljust(max(0, last - first), b"\0")
        return old

    def _lose(self, rng: Random) -> None:
        self.data = self._promised()

    def _tear(self, rng: Random) -> None:
        start, end = self._last_write
        end = min(end, len(self.data))
        if start >= end:
            return
        old, cut = self._promised(), rng.randrange(start, end)
        if end == len(self.data):
            del self.data[max(cut, len(old)) :]
        survives = old[cut:end]
        self.data[cut : cut + len(survives)] = survives

    def _scatter(self, rng: Random) -> None:
        """The kernel writes pages back in any order; one that was not is old, or zeros where there was none."""
        old = self._promised()
        pages = list(self._overwritten)
        pages += _pages(self._durable_size, len(self.data))
        for page in dict.fromkeys(pages):
            if rng.random() < 0.5:
                first, last = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, len(self.data))
                self.data[first:last] = old[first:last].ljust(last - first, b"\0")


def _pages(start: int, end: int) -> range:
    """The numbers of the pages that the bytes from ``start`` to ``end`` touch."""
    return range(start // PAGE_BYTES, -(-end // PAGE_BYTES) if end > start else 0)


def _keep(rng: Random) -> None:
    """Luck."""
