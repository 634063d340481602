import asyncio
import errno
import threading
from pathlib import Path

import pytest

from ottla.runtime.disk import File
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.sync_later import SyncLater


class SlowFile:
    """Counts syncs; each waits until it is let go."""

    def __init__(self) -> None:
        self.syncs = 0
        self.go = threading.Semaphore(0)
        self.error: OSError | None = None

    def sync(self) -> None:
        self.syncs += 1
        self.go.acquire()
        if self.error is not None:
            raise self.error


def as_file(file: SlowFile) -> File:
    return file  # type: ignore[return-value]  # as much of one as is used


async def answers(seen: "asyncio.Queue[OSError | None]", count: int) -> list[OSError | None]:
    return [await seen.get() for _ in range(count)]


def test_callers_during_a_sync_share_the_next_one() -> None:
    async def run() -> None:
        later, file, seen = SyncLater(), SlowFile(), asyncio.Queue[OSError | None]()
        later.sync(as_file(file), seen.put_nowait)
        for _ in range(100):
            later.sync(as_file(file), seen.put_nowait)
        file.go.release()
        assert await answers(seen, 1) == [None]
        assert seen.empty()  # the hundred came after the first sync had begun
        file.go.release()
        assert await answers(seen, 100) == [None] * 100
        assert file.syncs == 2
        later.close()

    asyncio.run(run())


def test_a_sync_that_ends_in_a_mistake_of_ours_is_a_failure_and_the_next_one_has_its_turn() -> None:
    class Strange:
        def sync(self) -> None:
            raise ValueError("closed meanwhile")

    async def run() -> None:
        later, file, seen = SyncLater(), SlowFile(), asyncio.Queue[OSError | None]()
        file.go.release()
        later.sync(Strange(), seen.put_nowait)
        later.sync(as_file(file), seen.put_nowait)
        assert [error and error.errno for error in await answers(seen, 2)] == [errno.EIO, None]
        later.close()

    asyncio.run(run())


def test_a_file_that_failed_once_never_reports_success_again() -> None:
    async def run() -> None:
        later, file, seen = SyncLater(), SlowFile(), asyncio.Queue[OSError | None]()
        file.error = OSError(5, "I/O error")
        file.go.release(2)
        later.sync(as_file(file), seen.put_nowait)
        first = await answers(seen, 1)
        file.error = None
        later.sync(as_file(file), seen.put_nowait)
        assert [error and error.errno for error in first + await answers(seen, 1)] == [5, 5]
        later.close()

    asyncio.run(run())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_could_not_be_opened_to_be_synced_lost_nothing(number: int) -> None:
    """The log directory goes on then: so must its logs, once there are descriptors and memory again."""

    async def run() -> None:
        later, file, seen = SyncLater(), SlowFile(), asyncio.Queue[OSError | None]()
        file.error = OSError(number, "not now")
        file.go.release(2)
        later.sync(as_file(file), seen.put_nowait)
        first = await answers(seen, 1)
        file.error = None
        later.sync(as_file(file), seen.put_nowait)
        assert [error and error.errno for error in first + await answers(seen, 1)] == [number, None]
        later.close()

    asyncio.run(run())


def test_real_files_are_synced_together(tmp_path: Path) -> None:
    async def run() -> None:
        later, disk, seen = SyncLater(), RealDisk(), asyncio.Queue[OSError | None]()
        files = [disk.open(str(tmp_path / name), create=True) for name in ("a", "b")]
        for file in files:
            later.sync(file, seen.put_nowait)
        assert await answers(seen, 2) == [None, None]
        for file in files:
            file.close()
        later.close()

    asyncio.run(run())
