"""The disk as the program sees it: files addressed by offset, explicit durability.

`Disk` and `File` are what the keepers (log, LMDB stores, checkpoints) are given. `RealDisk` is the operating
system's; `ottla.runtime.simulation.disk` forgets what was not synced when its node crashes.
Every method is synchronous; the callers decide what runs on a thread.
"""

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file. Offsets and lengths are bytes. OSError (ENOSPC, EIO) passes through unchanged."""

    path: str

    def write_at(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Writes all buffers, gathered, at ``offset``; returns the bytes written (always all of them, or OSError)."""
        ...

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to ``length`` bytes; shorter only at the end of the file."""
        ...

    def is_cached(self, offset: int, length: int) -> bool:
        """Whether a read would not wait for the disk, as far as a probe of both ends tells; True where none can tell."""
        ...

    def load(self, offset: int, length: int) -> None:
        """Waits for the disk, so that the next read of the range need not: for threads."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, offset: int, length: int) -> None:
        """Reserves space without changing the visible size (fallocate KEEP_SIZE); a hint, never an error on lack of support."""
        ...

    def start_writeback(self, offset: int, length: int) -> None:
        """Asks the kernel to begin writing dirty pages of the range (sync_file_range WRITE); promises nothing."""
        ...

    def sync(self) -> None:
        """fdatasync: when it returns, contents and size survive a crash of the machine.

        OSError is EIO also where room (delayed allocation) or memory lacked: what was not written will never be.
        """
        ...

    def fileno(self) -> int:
        """The descriptor, or -1 where there is none (simulation)."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock on a directory, held by this process until released or dead."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A tree of directories and files. A rename or unlink survives a crash only after ``sync_directory``."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Opens a file. FileNotFoundError unless it exists or ``create``."""
        ...

    def exists(self, path: str) -> bool:
        """OSError where that cannot be told."""
        ...

    def is_directory(self, path: str) -> bool:
        """OSError where that cannot be told."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Names, sorted."""
        ...

    def make_directories(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at ``target``."""
        ...

    def unlink(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None:
        """The names in it survive a crash. OSError as of a file's `sync`; EMFILE or ENOMEM where it could not be opened."""
        ...

    def sync_everything(self, path: str) -> None:
        """Makes all contents and names of the file system that holds ``path`` durable: one call for thousands of files."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int:
        """The size of the file system that holds ``path``."""
        ...

    def modified_ms(self, path: str) -> int: ...

    def lock(self, path: str) -> Lock:
        """Takes the lock file at ``path`` (created). BlockingIOError when another process holds it."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """``path`` holds the old or the new contents after a crash, never a mix: temporary file, sync, rename, sync of the directory."""
        ...
