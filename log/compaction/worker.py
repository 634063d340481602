"""Compaction in a process of its own, so that the interpreter that serves clients is never held up by it.

    python -m ottla.log.compaction.worker [BYTES_PER_SECOND]  < job (JSON), other speeds (a line each)  > outcome (JSON)

It only ever writes ``.cleaned`` files: one that dies, or whose parent does, leaves nothing that counts. The parent swaps.
"""

import os
import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import msgspec

from ottla.log.batch import CorruptBatchError
from ottla.log.compaction.cleaner import CleaningJob, CleaningResult, clean
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.errors import KafkaError
from ottla.runtime.real_disk import RealDisk

NICENESS = 10
"""Serving comes first: the kernel gives a worker what the loop leaves."""


class Outcome(msgspec.Struct, frozen=True):
    """How a worker ended: exactly one is set.

    ``damage``: the log cannot be cleaned until it is healed; ``failure``: worth another try.
    """

    result: CleaningResult | None = None
    damage: str | None = None
    failure: str | None = None


class CleanerProcess:
    """One worker with one job. `wait` blocks (put it on a thread) and returns what came of it, also when it was killed."""

    def __init__(self, job: CleaningJob, bytes_per_second: int = 0) -> None:
        command = [sys.executable, "-m", "ottla.log.compaction.worker", str(bytes_per_second)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._job = job
        self._has_job = False
        self._speed: int | None = None  # other than it began with

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> Outcome:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            # The pipe stays open while the worker runs: that it closes is how a worker learns of our death.
            stdin.write(msgspec.json.encode(self._job) + b"\n")
            stdin.flush()
            self._has_job = True
            if self._speed is not None:
                self.set_speed(self._speed)  # it came before
            answer = stdout.read()
        except BrokenPipeError:
            answer = b""
        finally:
            self._close()
        status = self._process.wait()
        return (
            msgspec.json.decode(answer, type=Outcome)
            if answer
            else Outcome(failure=f"cleaner process ended with status {status}")
        )

    def kill(self) -> None:
        self._process.kill()

    def set_speed(self, bytes_per_second: int) -> None:
        """From now on, wherever it is; 0: no limit. Waits for nothing."""
        self._speed = bytes_per_second
        stdin = self._process.stdin
        if self._has_job and stdin is not None:
            with suppress(OSError, ValueError):  # it has ended
                stdin.write(f"{bytes_per_second}\n".encode("ascii"))
                stdin.flush()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:
                pass


class Pacer:
    """Waits so that no more than ``bytes_per_second`` are worked on (0: no limit). Follows the parent: ends when that is gone, and
    takes another speed that it tells, at any moment."""

    def __init__(self, bytes_per_second: int, clock: Clock, parent: int, told: bytes = b"") -> None:
        """``parent``: a descriptor on which it tells speeds; ``told``: what was read of it already."""
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._parent = parent
        self._start_ms = clock.monotonic_ms()
        self._bytes = 0
        self._told = b""
        self._take(told)
        self.wait: Callable[[float], bool] = self._hears  # seconds; True: begin to wait anew

    def __call__(self, count: int) -> None:
        self._hears(0)
        self._bytes += count
        while self._bytes_per_second > 0 and self.wait(self._left_s()):
            pass

    def _left_s(self) -> float:
        due_ms = self._start_ms + self._bytes * 1000 // self._bytes_per_second
        return max(due_ms - self._clock.monotonic_ms(), 0) / 1000

    def _hears(self, seconds: float) -> bool:
        """Whether the parent told a speed within that time."""
        if not select.select([self._parent], [], [], seconds)[0]:
            return False
        told = os.read(self._parent, 4096)
        if not told:
            raise SystemExit(1)
        return self._take(told)

    def _take(self, told: bytes) -> bool:
        *speeds, self._told = (self._told + told).split(b"\n")
        if speeds:
            self._bytes_per_second, self._bytes = int(speeds[-1]), 0
            self._start_ms = self._clock.monotonic_ms()
        return bool(speeds)


def outcome_of(job: CleaningJob, pace: Pacer) -> Outcome:
    try:
        return Outcome(result=clean(RealDisk(), job, pace))
    except CorruptBatchError as error:
        return Outcome(damage=f"{job.directory}: {error.message}")
    except (OSError, KafkaError) as error:
        return Outcome(failure=f"{job.directory}: {error}")


def _read_line(descriptor: int) -> tuple[bytes, bytes]:
    """And what came behind it. Without a buffer of Python's, in which a speed would lie unseen by `select`."""
    parts: list[bytes] = []
    while (part := os.read(descriptor, 1 << 16)) and b"\n" not in part:
        parts.append(part)
    end, _, rest = part.partition(b"\n")
    return b"".join((*parts, end)), rest


def main() -> None:
    os.nice(NICENESS)
    parent = sys.stdin.fileno()
    line, told = _read_line(parent)
    job = msgspec.json.decode(line, type=CleaningJob)
    pace = Pacer(int(sys.argv[1]), SystemClock(), parent, told)
    sys.stdout.buffer.write(msgspec.json.encode(outcome_of(job, pace)))


if __name__ == "__main__":
    main()
