"""Compaction in a process of its own, so that the interpreter that serves clients is never held up by it.

    python -m ottla.log.compaction.worker [BYTES_PER_SECOND]  < job (JSON)  > outcome (JSON)

It only ever writes ``.cleaned`` files: one that dies, or whose parent does, leaves nothing that counts. The parent swaps.
"""

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable

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

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:
                pass


class Pacer:
    """Waits so that no more than ``bytes_per_second`` are worked on (0: no limit), and ends when the parent is gone."""

    def __init__(self, bytes_per_second: int, clock: Clock, parent: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._parent = parent
        self._start_ms = clock.monotonic_ms()
        self._bytes = 0
        self.wait: Callable[[float], object] = threading.Event().wait  # seconds; nobody ever sets it

    def __call__(self, count: int) -> None:
        if select.select([self._parent], [], [], 0)[0]:
            raise SystemExit(1)
        if self._bytes_per_second > 0:
            self._bytes += count
            due_ms = self._start_ms + self._bytes * 1000 // self._bytes_per_second
            self.wait(max(due_ms - self._clock.monotonic_ms(), 0) / 1000)


def outcome_of(job: CleaningJob, pace: Pacer) -> Outcome:
    try:
        return Outcome(result=clean(RealDisk(), job, pace))
    except CorruptBatchError as error:
        return Outcome(damage=f"{job.directory}: {error.message}")
    except (OSError, KafkaError) as error:
        return Outcome(failure=f"{job.directory}: {error}")


def main() -> None:
    os.nice(NICENESS)
    line = sys.stdin.buffer.readline()
    job = msgspec.json.decode(line, type=CleaningJob)
    pace = Pacer(int(sys.argv[1]), SystemClock(), sys.stdin.fileno())
    sys.stdout.buffer.write(msgspec.json.encode(outcome_of(job, pace)))


if __name__ == "__main__":
    main()
