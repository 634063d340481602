"""The index of aborted transactions beside a segment (``.txnindex``): what a read_committed consumer must skip.

Entries of 34 bytes, in the order of their markers: int16 version 0, producerId, firstOffset, lastOffset (of the abort
marker), lastStableOffset, all int64. The file exists only where a transaction was aborted.
"""

from struct import Struct
from typing import NamedTuple

from ottla.log.errors import NO_ROOM, NOT_THE_DISK
from ottla.runtime.disk import Disk
from ottla.runtime.errors import ErrorCode, KafkaError

VERSION = 0

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """One aborted transaction; all offsets are the log's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndexError(KafkaError):
    """An index that cannot be right: it is rebuilt from its segment."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


def encode(transaction: AbortedTransaction) -> bytes:
    return _ENTRY.pack(VERSION, *transaction)


def decode(data: bytes, path: str = "") -> list[AbortedTransaction]:
    """Raises TransactionIndexError for a size, a version or an order that cannot be."""
    if len(data) % ENTRY_BYTES:
        raise TransactionIndexError(f"{path}: {len(data)} bytes are not whole entries of {ENTRY_BYTES}")
    entries: list[AbortedTransaction] = []
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != VERSION:
            raise TransactionIndexError(f"{path}: entry of version {version}, known is {VERSION}")
        if entry.first_offset > entry.last_offset or (entries and entry.last_offset <= entries[-1].last_offset):
            raise TransactionIndexError(f"{path}: entry {entry} is out of order")
        entries.append(entry)
    return entries


def decode_whole(data: bytes) -> list[AbortedTransaction]:
    """Each entry that can be, of a file that as a whole cannot: what it says is to be held against the log."""
    whole = data[: len(data) - len(data) % ENTRY_BYTES]
    entries = [(version, AbortedTransaction(*fields)) for version, *fields in _ENTRY.iter_unpack(whole)]
    return [entry for version, entry in entries if version == VERSION and entry.first_offset <= entry.last_offset]


class TransactionIndex:
    """The aborted transactions whose marker lies in one segment. Kept in memory once read: most segments have none."""

    __slots__ = ("_disk", "_entries", "_written", "checked", "damaged", "is_new", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        self._written = 0  # entries that the file has
        self.checked = False  # held against the log, by whoever can
        self.damaged = False  # the file cannot be right: to be made anew before anything is believed
        self.is_new = False  # made anew: the file is replaced as a whole, at a `write`, and until then as it was

    def entries(self) -> list[AbortedTransaction]:
        """None of a file that cannot be right, and then it is ``damaged``."""
        if self._entries is None:
            try:
                self._entries = (
                    decode(self._disk.read_bytes(self.path), self.path) if self._disk.exists(self.path) else []
                )
            except TransactionIndexError:
                self._entries, self.damaged = [], True
            self._written = len(self._entries)
        return self._entries

    def whole_entries(self) -> list[AbortedTransaction]:
        """`entries`; of a file that cannot be right those that can be, in no order. OSError passes through."""
        entries = self.entries()
        if self.damaged and not self.is_new and self._disk.exists(self.path):
            return [*decode_whole(self._disk.read_bytes(self.path)), *entries]
        return entries

    def append(self, transaction: AbortedTransaction) -> None:
        """Raises TransactionIndexError unless the marker lies behind the last one's.

        The marker is in the log already, so the entry is known in any case. For want of room or descriptors its writing waits.
        """
        entries = self.entries()
        if entries and transaction.last_offset <= entries[-1].last_offset:
            raise TransactionIndexError(f"{self.path}: {transaction} does not follow {entries[-1]}")
        entries.append(transaction)
        if self.is_new:
            return
        try:
            self.write()
        except OSError as error:
            if error.errno not in (*NO_ROOM, *NOT_THE_DISK):
                raise

    @property
    def has_file(self) -> bool:
        """Whether there is a file: what was cut from it, by whomever, comes back with a power cut until it is synced."""
        return self._disk.exists(self.path)

    @property
    def lacks_file(self) -> bool:
        """Whether the next `write` makes the file."""
        return bool(self._entries) and not self._written and not self.is_new

    def write(self) -> None:
        """Brings the file up to the entries. OSError passes through."""
        entries = self._entries
        if self.is_new:
            self._replace()
        elif entries is not None and self._written < len(entries):
            self._write(b"".join(map(encode, entries[self._written :])), self._written * ENTRY_BYTES)
            self._written = len(entries)

    def aborted_between(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that overlap [start, end), and whether no later segment can hold another one.

        A transaction whose last stable offset reached ``end_offset`` proves that none below it is still open.
        """
        found: list[AbortedTransaction] = []
        for entry in self.entries():
            if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drops transactions whose marker lies at or behind ``offset``."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            written = min(len(kept), self._written)
            if not self.is_new and self._disk.exists(self.path):  # of one that was not written, a part may be there
                self._write(b"", written * ENTRY_BYTES)
            self._written, self._entries = written, kept

    def reset(self) -> None:
        """Empties the index: it is about to be rebuilt. The file stays until then: it may be durable, and below what is scanned after a crash."""
        self._entries, self._written, self.damaged = [], 0, False
        self.is_new = self._disk.exists(self.path)

    def replace(self, entries: list[AbortedTransaction]) -> None:
        """As `reset`, and these are what it has from now on."""
        self.reset()
        for entry in entries:
            self.append(entry)

    def sync(self) -> None:
        """Writes what is not written, and makes it durable. OSError passes through."""
        self.write()
        if self._disk.exists(self.path):
            file = self._disk.open(self.path)
            try:
                file.sync()
            finally:
                file.close()

    def _replace(self) -> None:
        entries = self._entries or []
        if entries:
            self._disk.write_atomically(self.path, b"".join(map(encode, entries)))
        elif self._disk.exists(self.path):
            self._disk.unlink(self.path)
        self._written, self.is_new = len(entries), False

    def _write(self, data: bytes, at: int) -> None:
        """Writes ``data`` at ``at`` and ends the file there."""
        # Opened each time: aborts are rare, and 10,000 partitions must not hold a descriptor for them.
        file = self._disk.open(self.path, create=True)
        try:
            file.truncate(at)
            if data:
                file.write_at([data], at)
        finally:
            file.close()
