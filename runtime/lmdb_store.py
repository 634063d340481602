"""`KeyValueStore` on LMDB.

LMDB without fsync is fast and, after a power cut, possibly corrupt: pages may reach the disk in any order. LMDB with
fsync is always whole and costs milliseconds a commit. So writes that need not be durable wait in memory and join the
next durable one in a single, synced transaction: the file is never corrupt, and a burst of commits costs one fsync.

LMDB maps its file. What was read of it counts as the process's memory, and an image is read once, at the start: so each commit lets go of it.
"""

import contextlib
import errno
import heapq
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile

import lmdb

from ottla.runtime import native
from ottla.runtime.key_value import DamagedStoreError, Pair

_WAITING_KEYS_MAX = 500_000  # about 100 MB of metadata; somebody should sync long before a write has to do it itself
_MAP_SIZE_BYTES = 1 << 32  # address space, not memory; doubled when it is full

_SCAN_CHUNK_PAIRS = 1000

_READ_ALL = "import lmdb, sys; lmdb.open(sys.argv[1], subdir=False, readonly=True, lock=False).copyfd(1, compact=True)"
"""Every page of the tree and the list of free ones."""

_DAMAGE = (lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError)

_Changes = dict[bytes, bytes | None]  # None: deleted


class LmdbStore:
    """One LMDB file at ``path`` (and ``path-lock``). Reads and writes on one thread; `sync`, `copy_to` and `restore` on any."""

    def __init__(self, path: str, *, map_size_bytes: int = _MAP_SIZE_BYTES, read_only: bool = False) -> None:
        """``read_only``: a file that nobody changes any more, which leaves no lock file beside it. OSError: it cannot be used."""
        self._path, self._map_size_bytes, self._read_only = path, map_size_bytes, read_only
        self._environment = self._open()
        self._real_path = os.path.realpath(path)  # as the system names it
        self._copying = threading.Lock()  # LMDB may not be resized meanwhile
        self._committing = threading.Lock()
        # Held for microseconds: around the two dictionaries, and around read transactions, which a resize would break.
        self._guard = threading.Lock()
        self._waiting: _Changes = {}
        self._being_committed: _Changes = {}
        self._writes = 0

    def _open(self) -> "lmdb.Environment":
        try:
            if not self._read_only and not _is_there(self._path):
                self._create()
            environment = lmdb.open(
                self._path,
                map_size=self._map_size_bytes,
                subdir=False,
                max_readers=16,
                readonly=self._read_only,
                lock=not self._read_only,
            )
            _check_end(environment, self._path)
        except lmdb.Error as error:
            raise _os_error(self._path, error) from error
        return environment

    def _create(self) -> None:
        """Empty, and whole or not at all: half of LMDB's first two pages (the disk was full) can be opened by nobody, ever."""
        beside = self._path + ".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        lmdb.open(beside, map_size=self._map_size_bytes, subdir=False, lock=False).close()
        _sync_path(beside)
        os.replace(beside, self._path)
        _sync_path(os.path.dirname(self._path) or ".")

    def get(self, key: bytes) -> bytes | None:
        with self._guard:
            for changes in (self._waiting, self._being_committed):
                if key in changes:
                    return changes[key]
            try:
                with self._environment.begin() as transaction:
                    value: bytes | None = transaction.get(key)
                    return value
            except lmdb.Error as error:
                raise _os_error(self._path, error) from error

    def scan(self, prefix: bytes = b"") -> Iterator[Pair]:
        with self._guard:
            changes = {**self._being_committed, **self._waiting}
        stored = self._stored(prefix, self._writes)
        if not changes:
            return stored
        changed = [(key, value) for key, value in changes.items() if value is not None and key.startswith(prefix)]
        return heapq.merge((pair for pair in stored if pair[0] not in changes), sorted(changed))

    def _stored(self, prefix: bytes, writes: int) -> Iterator[Pair]:
        position = prefix
        while True:
            pairs = self._chunk(position)
            if pairs and not pairs[-1][0].startswith(prefix):
                yield from takewhile(lambda pair: pair[0].startswith(prefix), pairs)
                return
            yield from pairs
            if len(pairs) < _SCAN_CHUNK_PAIRS:
                return
            if self._writes != writes:
                raise RuntimeError("the store was written to during a scan")
            position = pairs[-1][0] + b"\0"

    def _chunk(self, position: bytes) -> list[Pair]:
        try:
            with self._guard, self._environment.begin() as transaction, transaction.cursor() as cursor:
                if not (cursor.set_range(position) if position else cursor.first()):
                    return []
                return list(islice(cursor, _SCAN_CHUNK_PAIRS))
        except lmdb.Error as error:
            raise _os_error(self._path, error) from error

    def write(self, puts: Iterable[Pair], deletes: Iterable[bytes] = (), *, durable: bool) -> None:
        changes: _Changes = dict.fromkeys(deletes)
        changes.update(puts)
        with self._guard:
            self._writes += 1
            self._waiting.update(changes)
        if durable or len(self._waiting) > _WAITING_KEYS_MAX:
            self.sync()

    def sync(self) -> None:
        with self._committing:
            with self._guard:
                self._being_committed, self._waiting = self._waiting, {}
            try:
                if self._being_committed:
                    self._commit(self._being_committed)
                    native.let_go_of_mapped(self._real_path)
            except BaseException:
                with self._guard:
                    self._waiting = {**self._being_committed, **self._waiting}
                raise
            finally:
                self._being_committed = {}

    def _commit(self, changes: _Changes) -> None:
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    _apply(transaction, changes)
                return
            except lmdb.MapFullError:
                with self._copying, self._guard:
                    self._environment.set_mapsize(self._environment.info()["map_size"] * 2)
            except lmdb.Error as error:
                raise _os_error(self._path, error) from error

    def clear(self) -> None:
        with self._committing:
            with self._guard:
                self._writes += 1
                self._waiting = {}
            try:
                with self._environment.begin(write=True) as transaction:
                    transaction.drop(self._environment.open_db(txn=transaction), delete=False)
            except lmdb.Error as error:
                raise _os_error(self._path, error) from error

    def copy_to(self, path: str) -> None:
        self.sync()
        try:
            with self._copying:
                self._environment.copy(path, compact=True)
        except lmdb.Error as error:
            raise _os_error(path, error) from error
        _sync_path(path)
        _sync_path(os.path.dirname(path) or ".")

    def restore(self, path: str) -> None:
        """A file's copy instead of a transaction: a million keys would take one ten times as long."""
        with self._committing, self._copying:
            temporary = self._path + ".restored"
            shutil.copyfile(path, temporary)
            _sync_path(temporary)
            with self._guard:
                self._writes += 1
                self._waiting = {}
                self._environment.close()
                os.replace(temporary, self._path)
                _sync_path(os.path.dirname(self._path) or ".")
                self._environment = self._open()

    def close(self) -> None:
        self.sync()
        self._environment.close()


def _is_there(path: str) -> bool:
    """OSError where the disk cannot tell: what lies there must not give way to an empty store."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def _apply(transaction: "lmdb.Transaction", changes: _Changes) -> None:
    for key, value in changes.items():
        if value is None:
            transaction.delete(key)
        else:
            transaction.put(key, value)


def _check_end(environment: "lmdb.Environment", path: str) -> None:
    """LMDB maps the file, and whatever reads behind its end dies of that (SIGBUS). A file may be shorter than it says, for pages at
    its end that never were written; whether one is that was, a child finds out. Raises OSError."""
    wanted = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    size = os.stat(path).st_size
    if size < wanted and not _can_be_read(path):
        environment.close()
        raise DamagedStoreError(f"{path}: damaged: {size} bytes are left of {wanted}")


def _can_be_read(path: str) -> bool:
    command = [sys.executable, "-c", _READ_ALL, path]
    return not subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _os_error(path: str, error: "lmdb.Error") -> OSError:
    """With the number that tells a full disk from others, where LMDB's words have it."""
    text = str(error)
    if os.strerror(errno.ENOSPC) in text:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    return DamagedStoreError(f"{path}: {text}") if isinstance(error, _DAMAGE) else OSError(f"{path}: {text}")


def _sync_path(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
