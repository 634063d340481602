"""The disk that fails and the clock that jumps on request, in a process that is loaded with them."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.local_node import LocalNode
from ottla.testing.chaos.libraries import BROKEN, EVERYTHING, NO_ROOM, OPENS, SYNCS, WRITES, Clocks, FaultDisks

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


TELLER = """
import sys, threading, time
for line in sys.stdin:
    if line.strip() == "waits":
        began = time.monotonic()
        time.sleep(0.01)
        threading.Event().wait(0.01)
        print(time.monotonic() - began, flush=True)
    else:
        print(time.time(), time.time_ns() / 1e9, time.monotonic(), flush=True)
"""


def test_a_clock_jumps_and_the_time_that_waits_take_stays(tmp_path: Path, node: LocalNode) -> None:
    clocks = Clocks(tmp_path / "clocks")
    teller = subprocess.Popen(
        [sys.executable, "-S", "-c", TELLER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **clocks.environment(node)},
    )
    assert teller.stdin is not None
    assert teller.stdout is not None

    def told(what: str) -> list[float]:
        assert teller.stdin is not None
        assert teller.stdout is not None
        teller.stdin.write(what + "\n")
        teller.stdin.flush()
        return [float(each) for each in teller.stdout.readline().split()]

    for ahead_s in (0, -3600, 86_400.75, -0.5, 0):
        clocks.set(1, ahead_s)
        before, monotonic = time.time(), time.monotonic()
        seconds, nanoseconds, uptime = told("time")
        took = time.time() - before
        assert 0 <= seconds - before - ahead_s <= took + 0.001
        assert 0 <= nanoseconds - before - ahead_s <= took + 0.001
        assert 0 <= uptime - monotonic <= took + 0.001
        assert told("waits")[0] >= 0.02
    teller.communicate()
