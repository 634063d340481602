import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ottla.runtime import native
from ottla.runtime.real_disk import RealDisk, RealFile

DISK = RealDisk()


def test_gathered_writes_are_read_back(tmp_path: Path) -> None:
    file = DISK.open(str(tmp_path / "a"), create=True)
    assert file.write_at([b"one", bytearray(b"two"), memoryview(b"three")], 4) == 11
    assert file.read_at(100, 0) == b"\0\0\0\0onetwothree"
    assert file.read_at(3, 4) == b"one"
    assert file.size() == 15
    file.truncate(7)
    assert file.read_at(100, 4) == b"one"
    file.close()


def test_more_buffers_than_one_system_call_takes(tmp_path: Path) -> None:
    file = DISK.open(str(tmp_path / "a"), create=True)
    buffers = [b"%05d" % number for number in range(3000)]
    assert file.write_at(buffers, 0) == 15_000
    assert file.read_at(20_000, 0) == b"".join(buffers)
    file.close()


@pytest.mark.parametrize("look", [DISK.exists, DISK.is_directory])
def test_a_name_of_which_the_disk_cannot_tell_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[str], bool]
) -> None:
    """XFS that was shut down answers EIO to everything, NFS ESTALE. What lies there would be replaced as if it had never been."""
    file = tmp_path / "a"
    file.touch()
    assert not any(look(str(path)) for path in (tmp_path / "b", file / "below", tmp_path / ("x" * 300)))

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", broken)
        patch.setattr(os, "lstat", broken)
        with pytest.raises(OSError, match="Input/output error"):
            look(str(file))


def test_a_short_write_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: whole(fd, [b"".join(buffers)[:4]], offset))
    file = DISK.open(str(tmp_path / "a"), create=True)
    assert file.write_at([b"onetwo", b"", b"three"], 0) == 11
    assert file.read_at(100, 0) == b"onetwothree"
    file.close()


def test_preallocation_does_not_show_in_the_size(tmp_path: Path) -> None:
    file = DISK.open(str(tmp_path / "a"), create=True)
    file.allocate(0, 1 << 20)
    assert file.size() == 0
    file.write_at([b"x"], 0)
    file.start_writeback(0, 1)
    file.sync()
    assert file.size() == 1
    file.close()


def test_a_missing_file_is_not_created_unasked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DISK.open(str(tmp_path / "a"))


def test_closing_during_a_sync_waits_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DISK.open(str(tmp_path / "a"), create=True)
    assert isinstance(file, RealFile)
    seen: list[int] = []

    def sync(descriptor: int) -> None:
        file.close()
        os.fstat(descriptor)  # still open
        seen.append(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    thread = threading.Thread(target=file.sync)
    thread.start()
    thread.join()
    assert len(seen) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(seen[0])
    with pytest.raises(OSError, match="sync of a closed file") as caught:
        file.sync()
    assert caught.value.errno == errno.EBADF


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_a_sync_that_finds_no_room_lost_what_it_was_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = DISK.open(str(tmp_path / "a"), create=True)

    def no_room(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fdatasync", no_room)
    monkeypatch.setattr(os, "fsync", no_room)
    monkeypatch.setattr(native, "sync_file_system", no_room)
    for sync in (file.sync, partial(DISK.sync_directory, str(tmp_path)), partial(DISK.sync_everything, str(tmp_path))):
        with pytest.raises(OSError, match="found no room") as caught:
            sync()
        assert caught.value.errno == errno.EIO
    file.close()


def test_a_locked_directory_is_refused_until_released(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = DISK.lock(path)
    with pytest.raises(BlockingIOError):
        DISK.lock(path)
    lock.release()
    DISK.lock(path).release()


def test_an_atomic_write_replaces_the_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    DISK.write_atomically(path, b"old")
    DISK.write_atomically(path, b"new")
    assert DISK.read_bytes(path) == b"new"
    assert DISK.list_directory(str(tmp_path)) == ["checkpoint"]


def test_directories(tmp_path: Path) -> None:
    DISK.make_directories(str(tmp_path / "b" / "c"))
    DISK.make_directories(str(tmp_path / "a"))
    assert DISK.list_directory(str(tmp_path)) == ["a", "b"]
    assert DISK.is_directory(str(tmp_path / "b"))
    DISK.rename(str(tmp_path / "b"), str(tmp_path / "d"))
    DISK.sync_directory(str(tmp_path))
    DISK.sync_everything(str(tmp_path))
    assert DISK.exists(str(tmp_path / "d" / "c"))
    DISK.remove_tree(str(tmp_path / "d"))
    assert not DISK.exists(str(tmp_path / "d"))
    assert DISK.free_bytes(str(tmp_path)) > 0
    assert DISK.modified_ms(str(tmp_path)) > 1_600_000_000_000


def test_what_was_just_written_is_cached(tmp_path: Path) -> None:
    file = DISK.open(str(tmp_path / "file"), create=True)
    file.write_at([b"x" * 100_000], 0)
    assert file.is_cached(0, 100_000)
    file.load(0, 100_000)
    file.load(99_999, 5_000_000)
    file.close()


@pytest.mark.parametrize("cold_from", [0, 90_000])
def test_a_read_that_would_wait_for_the_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cold_from: int
) -> None:
    """The kernel answers EAGAIN to a read that may not wait (RWF_NOWAIT)."""

    def preadv(descriptor: int, buffers: object, offset: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        if offset >= cold_from:
            raise BlockingIOError(errno.EAGAIN, "not in the page cache")
        return 1

    file = DISK.open(str(tmp_path / "file"), create=True)
    file.write_at([b"x" * 100_000], 0)
    monkeypatch.setattr(os, "preadv", preadv)
    assert not file.is_cached(0, 100_000)
    assert file.is_cached(0, 50_000) == (cold_from > 0)
    file.close()


def test_a_file_system_that_cannot_tell_counts_as_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def preadv(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not here")

    file = DISK.open(str(tmp_path / "file"), create=True)
    monkeypatch.setattr(os, "preadv", preadv)
    assert file.is_cached(0, 1)
    file.close()


def test_the_whole_disk_is_larger_than_what_is_free(tmp_path: Path) -> None:
    assert DISK.total_bytes(str(tmp_path)) >= DISK.free_bytes(str(tmp_path))
