"""Asking for write-back holds nobody, whatever the disk is at."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.runtime import native, real_disk
from ottla.runtime.real_disk import RealDisk, RealFile
from ottla.runtime.write_back import AHEAD_MAX, WriteBack
from ottla.testing.processes import wait_for


class SlowDisk:
    """Takes a hint and is not done with it until it `may_go_on`."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def start_writeback(self, descriptor: int, offset: int, length: int) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(30)
        os.fstat(descriptor)  # still open
        self.asked.append((descriptor, offset, length))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    slow = SlowDisk()
    monkeypatch.setattr(native, "start_writeback", slow.start_writeback)
    monkeypatch.setattr(real_disk, "_write_back", WriteBack())
    yield slow
    slow.may_go_on.set()
    finish()


def finish() -> None:
    """All hints so far are done with."""
    done = threading.Event()
    wait_for(lambda: real_disk._write_back.ask(done.set), "room for one more")
    assert done.wait(30)


def opened(tmp_path: Path) -> RealFile:
    file = RealDisk().open(str(tmp_path / "a"), create=True)
    assert isinstance(file, RealFile)
    return file


def test_who_asks_does_not_wait_and_a_file_that_is_closed_meanwhile_is_closed_afterwards(
    tmp_path: Path, disk: SlowDisk
) -> None:
    file = opened(tmp_path)
    descriptor = file.fileno()
    file.start_writeback(0, 8)
    file.start_writeback(8, 8)
    assert disk.has_begun.wait(30)
    file.close()
    os.fstat(descriptor)
    disk.may_go_on.set()
    finish()
    assert disk.asked == [(descriptor, 0, 8), (descriptor, 8, 8)]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_closed_file_asks_for_nothing(tmp_path: Path, disk: SlowDisk) -> None:
    file = opened(tmp_path)
    file.close()
    file.start_writeback(0, 8)
    disk.may_go_on.set()
    finish()
    assert disk.asked == []


def test_where_the_disk_does_not_keep_up_hints_are_left_out_and_nothing_stays_open(
    tmp_path: Path, disk: SlowDisk
) -> None:
    file = opened(tmp_path)
    file.start_writeback(0, 1)
    assert disk.has_begun.wait(30)
    for number in range(2 * AHEAD_MAX):
        file.start_writeback(number, 1)
    file.close()
    disk.may_go_on.set()
    wait_for(lambda: file.fileno() < 0, "the descriptor to be closed")
    assert len(disk.asked) == 1 + AHEAD_MAX


def test_a_hint_that_fails_is_told_and_the_next_one_works(caplog: pytest.LogCaptureFixture) -> None:
    write_back, done = WriteBack(), threading.Event()

    def fail() -> None:
        raise OSError("a mistake of ours")

    assert write_back.ask(fail)
    assert write_back.ask(done.set)
    assert done.wait(30)
    assert "which is our mistake" in caplog.text
