"""A disk that fails as disks do: it forgets what was not synced, tears its last write, and may undo a truncation."""

from random import Random

from ottla.quorum.raft.voters import VoterSet
from ottla.testing.raft.memory import PAYLOAD_BYTES, Entry, Storage


class FaultyDisk(Storage):
    """After a crash it may hold a batch of which only a part was written, and whole ones behind it (pages reach the disk in
    any order): `recover` is what the shell's recovery does with that. The election state is written at once or not at all."""

    def __init__(self, static: VoterSet) -> None:
        super().__init__(static)
        self.truncations = 0
        self._cut_tail: tuple[int, list[Entry]] | None = None  # synced once, cut off since, and that is not synced

    def truncate(self, offset: int) -> None:
        tail = self.entries[offset - self.start : max(0, self.durable_end - self.start)]
        if tail:
            self._cut_tail = (offset, tail + (self._cut_tail[1] if self._cut_tail else []))
        if offset < self.end:
            self.truncations += 1
        super().truncate(offset)

    def restart_at(self, offset: int, epoch: int) -> None:
        self._cut_tail = None
        super().restart_at(offset, epoch)

    def synced(self, end_offset: int, truncations: int) -> None:
        """A sync that began before a truncation says nothing of what was written since."""
        if truncations == self.truncations:
            self.durable_end = max(self.durable_end, min(end_offset, self.end))
            self._cut_tail = None

    def lose(self, rng: Random, *, power: bool) -> None:
        """The process or (``power``) the machine died. What was not synced is there, or gone, or torn."""
        if power and self._cut_tail is not None and rng.random() < 0.5:
            offset, tail = self._cut_tail
            self.entries[offset - self.start :] = tail
            self.durable_end = self.end
        else:
            self._lose_unsynced(rng)
        self._cut_tail = None

    def _lose_unsynced(self, rng: Random) -> None:
        unsynced = self.end - self.durable_end
        at = self.durable_end - self.start + int(unsynced * rng.choice((0.0, 0.5, 1.0)))
        if at < len(self.entries) and rng.random() < 0.5:
            torn = self.entries[at]
            self.entries[at] = torn._replace(payload=torn.payload[: rng.randrange(PAYLOAD_BYTES)])
            at = rng.randrange(at, len(self.entries)) + 1
        del self.entries[at:]

    def recover(self) -> None:
        """What comes before the first batch that is not whole is kept, and synced; what comes behind it never was a log."""
        torn = (index for index, entry in enumerate(self.entries) if len(entry.payload) < PAYLOAD_BYTES)
        del self.entries[next(torn, len(self.entries)) :]
        self.durable_end = self.end
        super().recover()
