"""`Disk` on a simulated platter."""

import errno
import posixpath
from collections.abc import Sequence

from ottla.runtime.disk import Buffer, File, Lock
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.directory import Assignment, Directory
from ottla.runtime.simulation.inode import Inode
from ottla.runtime.simulation.platter import Platter, os_error

_ENOTEMPTY, _EISDIR, _ENOTDIR, _ENOENT = errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR, errno.ENOENT

_VIEWED_BYTES = 16 << 10
"""From where on a copy less is worth a view."""


class SimulatedFile:
    """An open file. Every use after its process or machine died raises SimulatedCrash."""

    def __init__(self, disk: "SimulatedDisk", path: str, inode: Inode, writable: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._writable = writable
        self._closed = False

    def _platter(self, *, to_write: bool = False) -> Platter:
        platter = self._disk.platter()
        if self._closed or (to_write and not self._writable):
            raise os_error(errno.EBADF, self.path)
        return platter

    def write_at(self, buffers: Sequence[Buffer], offset: int) -> int:
        platter, data = self._platter(to_write=True), b"".join(buffers)
        size = fitting = len(data)
        growth = offset + size - len(self._inode.data)
        if growth > platter.capacity_bytes - platter.used_bytes and growth > 0:
            fitting = max(0, size - (growth - (platter.capacity_bytes - platter.used_bytes)))

        def write(share: float) -> None:
            some = data if share == 1.0 and fitting == size else data[: int(fitting * share)]
            if some:
                inode = self._inode
                before = len(inode.data)
                inode.write(some, offset)
                self._changed(platter, before)

        platter.perform("write", self.path, write, offset, fitting)
        if fitting < size:
            raise os_error(errno.ENOSPC, self.path)
        return size

    def _changed(self, platter: Platter, size_before: int) -> None:
        platter.used_bytes += len(self._inode.data) - size_before
        self._inode.modified_ms = platter.now_ms()

    def read_at(self, length: int, offset: int) -> bytes:
        self._platter().check("read", self.path)
        data, end = self._inode.data, offset + length
        return bytes(data[offset:end]) if length < _VIEWED_BYTES else bytes(memoryview(data)[offset:end])

    def is_cached(self, offset: int, length: int) -> bool:
        return not any(self.path.startswith(path) for path in self._platter().cold)

    def load(self, offset: int, length: int) -> None:
        platter = self._platter()
        platter.check("read", self.path)
        for path in [each for each in platter.cold if self.path.startswith(each)]:
            del platter.cold[path]

    def size(self) -> int:
        self._platter()
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._platter(to_write=True).perform("truncate", self.path, lambda share: self._truncate(size, share), size)

    def _truncate(self, size: int, share: float) -> None:
        if share > 0:
            before = len(self._inode.data)
            self._inode.truncate(size)
            self._changed(self._disk.platter(), before)

    def allocate(self, offset: int, length: int) -> None:
        self._platter().check("allocate", self.path)

    def start_writeback(self, offset: int, length: int) -> None:
        self._platter()

    def sync(self) -> None:
        platter = self._platter()
        try:
            platter.perform("sync", self.path, lambda share: platter.synced(self._inode) if share > 0 else None)
        except OSError:
            self._inode.sync_failed()
            raise

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._closed = True


class SimulatedLock:
    """Held until released, or until the process that holds it is gone."""

    def __init__(self, disk: "SimulatedDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.platter().locked.pop(self._path, None)


class SimulatedDisk:
    """One process's view of a platter; dead with its process. A new process opens a new one on the same platter."""

    def __init__(self, platter: Platter) -> None:
        self._platter = platter
        self._session = platter.session

    def platter(self) -> Platter:
        """What the disk is on. SimulatedCrash when this view has died."""
        if self._session != self._platter.session:
            raise SimulatedCrash("a dead process used its disk")
        return self._platter

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        platter = self.platter()
        platter.check("open", path)
        entry = platter.find(path)
        if isinstance(entry, Directory):
            raise os_error(_EISDIR, path)
        if entry is None:
            if not create:
                raise os_error(_ENOENT, path)
            entry = self._create(path)
        return SimulatedFile(self, path, entry, writable)

    def _create(self, path: str) -> Inode:
        platter = self.platter()
        directory, name = platter.parent(path)
        inode = Inode(platter.now_ms())
        self._change("create", path, Assignment(directory, name, inode))
        return inode

    def _change(self, operation: str, path: str, *assignments: Assignment) -> None:
        platter = self.platter()
        platter.perform(operation, path, lambda share: platter.set_entry(*assignments) if share > 0 else None)

    def exists(self, path: str) -> bool:
        return self.platter().find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self.platter().find(path), Directory)

    def _directory(self, path: str, operation: str = "read") -> Directory:
        platter = self.platter()
        platter.check(operation, path)
        entry = platter.find(path)
        if not isinstance(entry, Directory):
            raise os_error(_ENOENT if entry is None else _ENOTDIR, path)
        return entry

    def _file(self, path: str) -> Inode:
        entry = self.platter().find(path)
        if not isinstance(entry, Inode):
            raise os_error(_ENOENT if entry is None else _EISDIR, path)
        return entry

    def list_directory(self, path: str) -> list[str]:
        return sorted(self._directory(path, "list").entries)

    def make_directories(self, path: str) -> None:
        missing: list[str] = []
        while not self.exists(path):
            missing.append(path)
            path = posixpath.dirname(path.rstrip("/")) or "/"
        self._directory(path)
        for each in reversed(missing):
            directory, name = self.platter().parent(each)
            self._change("mkdir", each, Assignment(directory, name, Directory()))

    def rename(self, source: str, target: str) -> None:
        platter = self.platter()
        entry = platter.find(source)
        if entry is None:
            raise os_error(_ENOENT, source)
        replaced = platter.find(target)
        if isinstance(replaced, Directory) and replaced.entries:
            raise os_error(_ENOTEMPTY, target)
        from_directory, from_name = platter.parent(source)
        to_directory, to_name = platter.parent(target)
        if replaced is entry:
            return
        self._change(
            "rename",
            f"{source} {target}",
            Assignment(from_directory, from_name, None),
            Assignment(to_directory, to_name, entry),
        )
        if isinstance(replaced, Inode):
            platter.used_bytes -= len(replaced.data)

    def unlink(self, path: str) -> None:
        inode = self._file(path)
        directory, name = self.platter().parent(path)
        self._change("unlink", path, Assignment(directory, name, None))
        self.platter().used_bytes -= len(inode.data)

    def remove_tree(self, path: str) -> None:
        for name in self.list_directory(path):
            child = posixpath.join(path, name)
            if self.is_directory(child):
                self.remove_tree(child)
            else:
                self.unlink(child)
        directory, name = self.platter().parent(path)
        self._change("rmdir", path, Assignment(directory, name, None))

    def sync_directory(self, path: str) -> None:
        directory, platter = self._directory(path), self.platter()
        platter.perform("sync_directory", path, lambda share: platter.journal.commit(directory) if share > 0 else None)

    def sync_everything(self, path: str) -> None:
        self._directory(path)
        platter = self.platter()
        platter.perform("sync", path, lambda share: platter.sync_everything() if share > 0 else None)

    def free_bytes(self, path: str) -> int:
        platter = self.platter()
        platter.check("read", path)
        return max(0, platter.capacity_bytes - platter.used_bytes)

    def total_bytes(self, path: str) -> int:
        platter = self.platter()
        platter.check("read", path)
        return platter.capacity_bytes

    def modified_ms(self, path: str) -> int:
        entry = self.platter().find(path)
        if entry is None:
            raise os_error(_ENOENT, path)
        return entry.modified_ms if isinstance(entry, Inode) else 0

    def lock(self, path: str) -> Lock:
        platter = self.platter()
        if path in platter.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "Resource temporarily unavailable", path)
        self.open(path, create=True)
        platter.locked[path] = self._session
        return SimulatedLock(self, path)

    def read_bytes(self, path: str) -> bytes:
        self.platter().check("open", path)
        self.platter().check("read", path)
        return bytes(self._file(path).data)

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.write_at([data], 0)
        file.sync()
        file.close()
        self.rename(temporary, path)
        self.sync_directory(posixpath.dirname(path) or ".")
