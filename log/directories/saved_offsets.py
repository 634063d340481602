"""A checkpoint file at the root of a log directory that is written behind the program's back, and what it may say meanwhile."""

from ottla.log.directories.owned_offsets import OwnedOffsets, owned_table
from ottla.log.names import TopicIdPartition
from ottla.runtime.replaced_files import ReplacedFiles
from ottla.runtime.work_later import Later, OnDone


class SavedOffsets:
    """One file. ``saved``: what it has for sure. ``awaited``: what was given to be written since; the file may have either."""

    __slots__ = ("_files", "_path", "_under_way", "awaited", "saved")

    def __init__(self, files: ReplacedFiles, path: str, saved: OwnedOffsets) -> None:
        self._files = files
        self._path = path
        self._under_way = 0
        self.saved = saved
        self.awaited: OwnedOffsets | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a write was given and is not through."""
        return self._under_way > 0

    @property
    def latest(self) -> OwnedOffsets:
        return self.saved if self.awaited is None else self.awaited

    def highest(self, key: TopicIdPartition) -> int:
        """The most that the file may say of a partition; -1 if nothing."""
        return max(self.saved.get(key, -1), self.latest.get(key, -1))

    def replace(self, offsets: OwnedOffsets) -> None:
        """Durable when it returns, and what is under way comes too late. Raises OSError."""
        if offsets != self.saved or self.awaited is not None:
            self._files.prepare(self._path, lambda: owned_table(offsets))()
            self.saved, self.awaited = offsets, None

    def replace_later(self, offsets: OwnedOffsets, later: Later, on_done: OnDone) -> None:
        """``on_done`` is called only if there was something to write."""
        if offsets == self.saved and self.awaited is None:
            return
        write = self._files.prepare(self._path, lambda: owned_table(offsets))
        self.awaited = offsets
        self._under_way += 1

        def written(error: OSError | None) -> None:
            self._under_way -= 1
            if error is None and self.awaited is offsets:  # else something newer was given
                self.saved, self.awaited = offsets, None
            on_done(error)

        later(write, written)
