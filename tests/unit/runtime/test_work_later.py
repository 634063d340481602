import asyncio
import errno
import threading
from pathlib import Path

import pytest

from ottla.runtime.real_disk import RealDisk
from ottla.runtime.replaced_files import ReplacedFiles
from ottla.runtime.work_later import WorkLater, at_once


def test_work_is_done_off_the_loop_one_piece_after_another_in_the_order_given() -> None:
    async def run() -> None:
        later, done, told = WorkLater(), list[int](), list[int]()
        threads = dict[threading.Thread, None]()

        def work(number: int) -> None:
            threads[threading.current_thread()] = None
            done.append(number)

        for number in range(20):
            later.do(lambda number=number: work(number), lambda _, number=number: told.append(number))  # type: ignore[misc]  # bound now
        await later.close()
        assert done == told == list(range(20))
        assert len(threads) == 1
        assert threading.current_thread() not in threads

    asyncio.run(run())


def test_work_that_ends_in_a_mistake_of_ours_is_a_failure_and_the_next_has_its_turn() -> None:
    async def run() -> None:
        later, told = WorkLater(), list[OSError | None]()

        def fail() -> None:
            raise ValueError("closed meanwhile")

        later.do(fail, told.append)
        later.do(lambda: None, told.append)
        await later.close()
        assert [error and error.errno for error in told] == [errno.EIO, None]

    asyncio.run(run())


def test_what_the_disk_says_is_told_and_the_rest_goes_on() -> None:
    async def run() -> None:
        later, told = WorkLater(), list[OSError | None]()
        error = OSError(5, "I/O error")

        def fail() -> None:
            raise error

        later.do(fail, told.append)
        later.do(lambda: None, told.append)
        await later.close()
        assert told == [error, None]

    asyncio.run(run())


def test_closing_waits_for_what_was_given_or_only_for_what_is_being_done() -> None:
    async def run(drop_waiting: bool) -> list[int]:
        later, go, done = WorkLater(), threading.Event(), list[int]()

        def first() -> None:
            go.wait(10)
            done.append(1)

        later.do(first, lambda _: None)
        later.do(lambda: done.append(2), lambda _: None)
        closing = asyncio.ensure_future(later.close(drop_waiting=drop_waiting))
        await asyncio.sleep(0)
        assert not closing.done()
        go.set()
        await closing
        return done

    assert asyncio.run(run(drop_waiting=False)) == [1, 2]
    assert asyncio.run(run(drop_waiting=True)) == [1]


def test_who_can_wait_is_told_before_the_call_returns() -> None:
    told = list[OSError | None]()
    at_once(lambda: None, told.append)
    assert told == [None]


def test_a_late_write_never_replaces_a_newer_one(tmp_path: Path) -> None:
    files, path = ReplacedFiles(RealDisk()), tmp_path / "file"
    older = files.prepare(str(path), lambda: b"older")
    newer = files.prepare(str(path), lambda: b"newer")
    newer()
    older()
    assert path.read_bytes() == b"newer"


def test_a_newer_write_that_failed_does_not_count(tmp_path: Path) -> None:
    files, path = ReplacedFiles(RealDisk()), tmp_path / "file"
    older = files.prepare(str(path), lambda: b"older")
    newer = files.prepare(str(path), lambda: (tmp_path / "missing").read_bytes())
    with pytest.raises(FileNotFoundError):
        newer()
    older()
    assert path.read_bytes() == b"older"
