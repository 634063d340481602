"""The quorum node's log and store without a disk. For tests of the shell alone; the whole cluster runs on `ottla.log`."""

from collections.abc import Iterable, Iterator, Sequence

from ottla.log.batch import headers
from ottla.runtime.disk import Buffer


class MemoryFile:
    """A file that only counts how often it was synced."""

    path = "memory"

    def __init__(self) -> None:
        self.syncs = 0
        self.error: OSError | None = None

    def sync(self) -> None:
        self.syncs += 1
        if self.error is not None:
            raise self.error

    def write_at(self, buffers: Sequence[Buffer], offset: int) -> int:
        raise NotImplementedError

    def read_at(self, length: int, offset: int) -> bytes:
        raise NotImplementedError

    def is_cached(self, offset: int, length: int) -> bool:
        return True

    def load(self, offset: int, length: int) -> None:
        raise NotImplementedError

    def size(self) -> int:
        return 0

    def truncate(self, size: int) -> None:
        raise NotImplementedError

    def allocate(self, offset: int, length: int) -> None: ...

    def start_writeback(self, offset: int, length: int) -> None: ...

    def fileno(self) -> int:
        return -1

    def close(self) -> None: ...


class MemoryRead:
    def __init__(self, data: bytes) -> None:
        self.data = data


class MemoryEpochs:
    def __init__(self, log: "MemoryLog") -> None:
        self._log = log

    def entries(self) -> tuple[tuple[int, int], ...]:
        found: list[tuple[int, int]] = []
        for base, _, epoch, _ in self._log.batches:
            if not found or epoch > found[-1][0]:
                found.append((epoch, base))
        return tuple(found)


class MemoryLog:
    """`MetadataLog` as a list of batches (base offset, end offset, epoch, bytes)."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int, bytes]] = []
        self.log_start_offset = 0
        self.high_watermark = 0
        self.active_file = MemoryFile()
        self.epochs = MemoryEpochs(self)

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1][1] if self.batches else self.log_start_offset

    @property
    def size_bytes(self) -> int:
        return sum(len(data) for *_, data in self.batches)

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        return sum(len(data) for base, end, _, data in self.batches if base >= start_offset and end <= end_offset)

    def append_as_follower(self, view: memoryview | bytes, leader_epoch: int) -> None:
        for position, header in headers(view):
            assert header.base_offset == self.log_end_offset
            data = bytes(view[position : position + header.size_bytes])
            self.batches.append((header.base_offset, header.next_offset, header.leader_epoch, data))

    def read(self, offset: int, max_bytes: int, limit_offset: int, *, minimum_one: bool) -> MemoryRead:
        chosen: list[bytes] = []
        for base, end, _, data in self.batches:
            if (
                base >= offset
                and end <= limit_offset
                and (not chosen or sum(map(len, chosen)) + len(data) <= max_bytes)
            ):
                chosen.append(data)
        return MemoryRead(b"".join(chosen))

    def truncate_to(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch[1] <= offset]

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.batches = []
        self.log_start_offset = offset

    def roll(self) -> None: ...

    def advance_log_start(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch[1] > offset]
        self.log_start_offset = max(self.log_start_offset, offset)

    def delete_old_segments(self, now_ms: int) -> None: ...

    def purge(self, now_ms: int) -> None: ...

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset

    def mark_synced(self, synced: int) -> None: ...

    def flush(self) -> None: ...


class MemoryStore:
    """`KeyValueStore` as a dict."""

    def __init__(self) -> None:
        self.pairs: dict[bytes, bytes] = {}
        self.durable_writes = 0

    def get(self, key: bytes) -> bytes | None:
        return self.pairs.get(key)

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self.pairs.items() if key.startswith(prefix)))

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = (), *, durable: bool) -> None:
        for key in deletes:
            self.pairs.pop(key, None)
        self.pairs.update(puts)
        self.durable_writes += durable

    def sync(self) -> None: ...

    def clear(self) -> None:
        self.pairs.clear()

    def copy_to(self, path: str) -> None:
        raise NotImplementedError

    def restore(self, path: str) -> None:
        raise NotImplementedError

    def close(self) -> None: ...
