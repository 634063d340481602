"""The operating system's disk."""

import errno
import fcntl
import os
import shutil
import stat
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from ottla.runtime import native
from ottla.runtime.disk import Buffer, File, Lock
from ottla.runtime.write_back import WriteBack

_PROBE = (bytearray(1),)
_LOAD_BYTES = 1 << 20
_BUFFERS_PER_CALL_MAX = 1024  # IOV_MAX on Linux
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)

# One lock for all files: it is held for a few instructions, around a close or the start and end of a sync.
_closing = threading.Lock()
_write_back = WriteBack()


def _mode(look: Callable[[str], os.stat_result], path: str) -> int | None:
    """None where there is nothing of that name. A disk that cannot tell (EIO) is no disk without it: OSError passes through."""
    try:
        return look(path).st_mode
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise


def _sync(sync: Callable[[int], None], descriptor: int, path: str) -> None:
    try:
        sync(descriptor)
    except OSError as error:
        # The kernel calls what found no room clean: it is lost, however much room there will be.
        if error.errno in _NOT_WRITTEN:
            raise OSError(errno.EIO, f"a sync found no room: {error.strerror}", path) from error
        raise


class RealFile:
    """A descriptor. `close` while another thread works with it waits for nothing: that thread closes it when it is done."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._users = 0
        self._closed = False

    def write_at(self, buffers: Sequence[Buffer], offset: int) -> int:
        if len(buffers) == 1:  # the usual append: a third cheaper
            total = len(buffers[0])
            if os.pwrite(self._descriptor, buffers[0], offset) == total:
                return total
        total = sum(map(len, buffers))
        if len(buffers) <= _BUFFERS_PER_CALL_MAX and os.pwritev(self._descriptor, buffers, offset) == total:
            return total
        return self._write_rest(buffers, offset, total)

    def _write_rest(self, buffers: Sequence[Buffer], offset: int, total: int) -> int:
        """Writes everything again from the start: simpler than resuming, and a short write is as good as never."""
        pending = [memoryview(buffer) for buffer in buffers if len(buffer)]
        written = 0
        while pending:
            count = os.pwritev(self._descriptor, list(islice(pending, _BUFFERS_PER_CALL_MAX)), offset + written)
            written += count
            while pending and count >= len(pending[0]):
                count -= len(pending.pop(0))
            if count:
                pending[0] = pending[0][count:]
        assert written == total
        return total

    def read_at(self, length: int, offset: int) -> bytes:
        data = os.pread(self._descriptor, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        missing, offset = length - len(data), offset + len(data)
        while missing and (data := os.pread(self._descriptor, missing, offset)):
            parts.append(data)
            missing, offset = missing - len(data), offset + len(data)
        return b"".join(parts) if len(parts) > 1 else parts[0]

    def is_cached(self, offset: int, length: int) -> bool:
        try:
            os.preadv(self._descriptor, _PROBE, offset + length - 1, os.RWF_NOWAIT)
            os.preadv(self._descriptor, _PROBE, offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # not every file system has it; and what else is wrong, the read will tell
        return True

    def load(self, offset: int, length: int) -> None:
        end = offset + length
        while offset < end and (data := os.pread(self._descriptor, min(_LOAD_BYTES, end - offset), offset)):
            offset += len(data)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def allocate(self, offset: int, length: int) -> None:
        native.preallocate(self._descriptor, offset, length)

    def start_writeback(self, offset: int, length: int) -> None:
        if self._begin_use() and not _write_back.ask(partial(self._write_back, offset, length)):
            self._end_use()

    def _write_back(self, offset: int, length: int) -> None:
        try:
            native.start_writeback(self._descriptor, offset, length)
        finally:
            self._end_use()

    def sync(self) -> None:
        if not self._begin_use():
            raise OSError(errno.EBADF, "sync of a closed file", self.path)
        try:
            _sync(os.fdatasync, self._descriptor, self.path)
        finally:
            self._end_use()

    def _begin_use(self) -> bool:
        """False: it is closed."""
        with _closing:
            if self._closed:
                return False
            self._users += 1
            return True

    def _end_use(self) -> None:
        with _closing:
            self._users -= 1
            self._close_when_idle()

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        with _closing:
            self._closed = True
            self._close_when_idle()

    def _close_when_idle(self) -> None:
        # A descriptor closed under a thread that works with it could be reused, and a sync would report on another file.
        if self._closed and not self._users and self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class RealLock:
    """flock(2): the kernel releases it when the process dies, however it dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealDisk:
    """`Disk` over ``os``."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return RealFile(path, os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return _mode(os.lstat, path) is not None

    def is_directory(self, path: str) -> bool:
        mode = _mode(os.stat, path)
        return mode is not None and stat.S_ISDIR(mode)

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync(os.fsync, descriptor, path)
        finally:
            os.close(descriptor)

    def sync_everything(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync(native.sync_file_system, descriptor, path)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def lock(self, path: str) -> Lock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return RealLock(descriptor)

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        file = RealFile(temporary, descriptor)
        try:
            file.write_at([data], 0)
            file.sync()
        finally:
            file.close()
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path) or ".")
