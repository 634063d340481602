"""The disk that fails on request, in a process that is loaded with it."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.local_node import LocalNode
from ottla.testing.chaos.libraries import BROKEN, EVERYTHING, NO_ROOM, OPENS, SYNCS, WRITES, FaultDisks

CHILD = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
calls = {
    "write": lambda: os.write(file, b"x"), "pwritev": lambda: os.pwritev(file, [b"x"], 0), "truncate": lambda: os.ftruncate(file, 3),
    "sync": lambda: os.fsync(file), "datasync": lambda: os.fdatasync(file), "read": lambda: os.pread(file, 1, 0),
    "make": lambda: os.open(sys.argv[1] + "-2", os.O_RDWR | os.O_CREAT), "open": lambda: os.open(sys.argv[1], os.O_RDWR),
}
for line in sys.stdin:
    try:
        calls[line.strip()]()
    except OSError as error:
        print(error.errno, flush=True)
    else:
        print(0, flush=True)
"""


class Child:
    """A process on a fault disk, which does what it is told."""

    def __init__(self, disks: FaultDisks, node: LocalNode, path: Path) -> None:
        environment = {**os.environ, **disks.environment(node)}
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", CHILD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def errors(self, *calls: str) -> list[int]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        found = []
        for call in calls:
            self.process.stdin.write(call + "\n")
            self.process.stdin.flush()
            found.append(int(self.process.stdout.readline()))
        return found

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def disks(tmp_path: Path) -> FaultDisks:
    return FaultDisks(tmp_path / "disks")


@pytest.fixture
def node(tmp_path: Path) -> LocalNode:
    node = LocalNode(tmp_path, 1, 0)
    (node.home / "data").mkdir(parents=True)
    return node


@pytest.fixture
def child(disks: FaultDisks, node: LocalNode) -> Iterator[Child]:
    child = Child(disks, node, node.home / "data" / "log")
    yield child
    child.end()


def test_calls_fail_as_told_and_are_counted(disks: FaultDisks, child: Child) -> None:
    assert child.errors("write", "sync", "read") == [0, 0, 0]
    disks.strike(1, WRITES | OPENS, error=NO_ROOM)
    assert child.errors("write", "pwritev", "truncate", "make") == [errno.ENOSPC] * 4
    assert child.errors("sync", "read", "open") == [0, 0, 0]
    disks.strike(1, SYNCS, error=BROKEN)
    assert child.errors("write", "sync", "datasync") == [0, errno.EIO, errno.EIO]
    disks.strike(1, EVERYTHING, error=BROKEN)
    assert child.errors("read") == [errno.EIO]
    disks.spare(1)
    assert child.errors("write", "sync", "read", "make") == [0] * 4
    assert disks.struck(1) == (7, 0)


def test_a_slow_call_is_counted_and_succeeds(disks: FaultDisks, child: Child) -> None:
    disks.strike(1, WRITES, delay_ms=1)
    assert child.errors("write", "sync") == [0, 0]
    assert disks.struck(1) == (0, 1)


def test_files_elsewhere_are_left_alone(disks: FaultDisks, node: LocalNode, tmp_path: Path) -> None:
    child = Child(disks, node, tmp_path / "elsewhere")
    disks.strike(1, EVERYTHING, error=BROKEN)
    assert child.errors("write", "sync", "read", "make") == [0] * 4
    assert disks.struck(1) == (0, 0)
    child.end()
