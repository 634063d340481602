"""What a simulated machine's disk holds, and what can go wrong with it. Outlives the processes that use it."""

import errno
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from random import Random
from typing import NamedTuple

from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.directory import Assignment, Directory, Entry, Journal
from ottla.runtime.simulation.inode import Inode


class Failure(NamedTuple):
    """Operations named in ``operations`` (all, when empty) under ``path`` fail with ``number``."""

    path: str
    number: int
    operations: tuple[str, ...]

    def concerns(self, operation: str, path: str) -> bool:
        return path.startswith(self.path) and (not self.operations or operation in self.operations)


FAILS_WITH = {
    errno.EMFILE: ("open", "list", "sync_directory"),
    errno.ENOSPC: ("write", "create", "mkdir", "rename", "truncate"),
    errno.EIO: (),
}
"""Which operations can fail so; none named: all."""


class OneFailure:
    """The ``left``-th attempt from now that fits fails; of a write, ``written`` (0.0 to 1.0) arrives before."""

    def __init__(self, left: int, failure: Failure, written: float) -> None:
        self.left = left
        self.failure = failure
        self.written = written


class Platter:
    """A tree of files in memory, with power cuts.

    A file's contents are durable after its sync, its name after a sync of its directory. Half of all platters (the seed
    decides) are kinder, as ext4 is: there the sync of a file makes every earlier change of names durable too.
    ``operations`` counts changes and syncs; `crash_at_operation` cuts the power in the middle of one of them.
    ``on_attempt`` is told of whatever can fail, reads and opens too; `fail_once` has one of them fail.
    """

    def __init__(self, rng: Random, on_operation: Callable[..., None] | None = None) -> None:
        self.root = Directory()
        self.journal = Journal()
        self.session = 0
        self.operations = 0
        self.on_attempt: Callable[[str, str], None] | None = None
        self.capacity_bytes = 1 << 40
        self.used_bytes = 0
        self.locked: dict[str, int] = {}
        self.cold: dict[str, None] = {}
        """Paths whose files, and those below, are not cached, until one of them is loaded."""
        self.now_ms: Callable[[], int] = lambda: 0
        self._rng = rng
        self._on_operation = on_operation
        self._sync_commits_names = rng.random() < 0.5
        self._failures: list[Failure] = []
        self._single: list[OneFailure] = []
        self._written = 0.0
        self._crash_at = 0
        self._on_crash: Callable[[], None] | None = None

    @classmethod
    def seeded(cls, seed: int) -> "Platter":
        """For tests without an event loop."""
        return cls(Random(seed))  # noqa: S311 - faults are no secret

    # --- the tree

    def find(self, path: str) -> Entry | None:
        return self._find(_names(path))

    def _find(self, names: Iterable[str]) -> Entry | None:
        entry: Entry | None = self.root
        for name in names:
            if entry.__class__ is not Directory:  # isinstance() would take twice as long, and this is the hot one
                return None
            entry = entry.entries.get(name)
        return entry

    def parent(self, path: str) -> tuple[Directory, str]:
        """The directory that holds ``path`` and the name in it; FileNotFoundError without that directory."""
        names = _names(path)
        directory = self._find(names[:-1])
        if not isinstance(directory, Directory) or not names:
            raise os_error(errno.ENOENT, path)
        return directory, names[-1]

    def files(self) -> Iterator[Inode]:
        """Every file, in the order of their paths."""
        waiting: list[Entry] = [self.root]
        while waiting:
            entry = waiting.pop()
            if isinstance(entry, Inode):
                yield entry
            else:
                waiting += [entry.entries[name] for name in sorted(entry.entries, reverse=True)]

    # --- operations

    def perform(self, operation: str, path: str, action: Callable[[float], None], *detail: int) -> None:
        """Runs ``action(1.0)``: all of it. In a crash in the middle: some part of it, from 0.0 to 1.0.

        Raises OSError where a failure is planted, SimulatedCrash when the power is cut.
        """
        if self._failures or self._single or self.on_attempt:
            self._try(operation, path, action)
        self.operations += 1
        if self._on_operation is not None:
            self._on_operation(operation, path, *detail)
        if self.operations != self._crash_at:
            action(1.0)
            return
        action(self._rng.choice((0.0, 1.0, self._rng.random())))
        self._crash_at = 0
        self.power_loss()
        if self._on_crash is not None:
            self._on_crash()
        raise SimulatedCrash(f"{operation} {path}")

    def _try(self, operation: str, path: str, action: Callable[[float], None]) -> None:
        self._written = 0.0
        try:
            self.check(operation, path)
        except OSError:
            if operation == "write" and self._written:
                action(self._written)
            raise

    def check(self, operation: str, path: str) -> None:
        """OSError when a failure is planted for this."""
        if not (self._failures or self._single or self.on_attempt):
            return
        if self.on_attempt is not None:
            self.on_attempt(operation, path)
        for single in self._single:
            if single.failure.concerns(operation, path):
                single.left -= 1
                if not single.left:
                    self._single.remove(single)
                    self._written = single.written
                    raise os_error(single.failure.number, path)
        for failure in self._failures:
            if failure.concerns(operation, path):
                raise os_error(failure.number, path)

    def synced(self, inode: Inode) -> None:
        inode.sync()
        if self._sync_commits_names:
            self.journal.commit_all()

    def sync_everything(self) -> None:
        for inode in self.files():
            inode.sync()
        self.journal.commit_all()

    def set_entry(self, *assignments: Assignment) -> None:
        self.journal.change(*assignments)

    # --- faults

    def crash_at_operation(self, number: int, on_crash: Callable[[], None] | None = None) -> None:
        """Cuts the power in the ``number``-th operation from now; 1 is the next one."""
        self._crash_at = self.operations + number
        self._on_crash = on_crash

    def cancel_crash(self) -> None:
        """The planted crash will not come, if it has not come yet."""
        self._crash_at = 0

    def fail(self, path: str, number: int = errno.EIO, operations: tuple[str, ...] = ()) -> Callable[[], None]:
        """From now on operations on paths that start with ``path`` raise OSError(number), until the answer is called.

        ``operations``: any of "open", "read", "list", "write", "sync", "truncate", "allocate", "create", "rename", "unlink",
        "mkdir", "rmdir" and "sync_directory"; all of them when none is named.
        """
        failure = Failure(path, number, operations)
        self._failures.append(failure)
        return lambda: self._failures.remove(failure)

    def fail_once(
        self, number: int, error: int, operations: tuple[str, ...] = (), path: str = "/", *, written: float = 0.0
    ) -> Callable[[], bool]:
        """The ``number``-th of the next such operations (as in `fail`; 1: the next one) raises OSError(error), and no other.

        Of a write the share ``written`` arrives before. The answer calls it off, and says whether it has come.
        """
        single = OneFailure(number, Failure(path, error, operations), written)
        self._single.append(single)

        def cancel() -> bool:
            self._single = [each for each in self._single if each is not single]
            return not single.left

        return cancel

    @property
    def failure_is_due(self) -> bool:
        """Whether a `fail_once` has not come yet."""
        return bool(self._single)

    @property
    def is_sound(self) -> bool:
        """Nothing is planted, and nobody counts: `sound` would change nothing."""
        return not (self._failures or self._single or self.on_attempt)

    @contextmanager
    def sound(self) -> Iterator[None]:
        """Within it nothing fails and nothing is counted: for a test that looks at what there is."""
        planted = self._failures, self._single, self.on_attempt
        self._failures, self._single, self.on_attempt = [], [], None
        try:
            yield
        finally:
            self._failures, self._single, self.on_attempt = planted

    def repair(self) -> None:
        """No failure any more."""
        self._failures.clear()
        self._single.clear()

    def flip(self, path: str, position: int, bit: int = 0) -> None:
        """A bit of the file is another from now on, and nobody is told."""
        inode = self.find(path)
        assert isinstance(inode, Inode), path
        inode.data[position] ^= 1 << bit

    def close_sessions(self) -> None:
        """The process that had files open is gone."""
        self.session += 1
        self.locked.clear()

    def power_loss(self) -> None:
        """Back to what was promised, and as much of the rest as the seed allows. Open files are dead."""
        self._crash_at = 0
        self.close_sessions()
        self.journal.power_loss(self._rng)
        waiting = [self.root]
        while waiting:
            directory = waiting.pop()
            directory.entries = dict(directory.durable)
            waiting += [entry for entry in directory.entries.values() if isinstance(entry, Directory)]
        for inode in self.files():
            inode.power_loss(self._rng)
        self.used_bytes = sum(len(inode.data) for inode in self.files())


def os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


@lru_cache(1 << 14)
def _names(path: str) -> tuple[str, ...]:
    normal = posixpath.normpath(path)
    return tuple(name for name in normal.split("/") if name not in ("", "."))
