"""A job in processes of its own, which dies and is started again."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

KILLED_EARLY = 0.2
"""How often a job is killed before it did anything since its start."""


class Job:
    """The command in a process group of its own; all it says is kept."""

    def __init__(self, command: list[str], checkpoint: Path, log: Path, environment: dict[str, str]) -> None:
        self._command = command
        self._checkpoint = checkpoint
        self._environment = environment
        self.log = log
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            log.write(f"--- start {self.starts} ---\n".encode())
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        self.starts += 1

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def batches(self) -> int:
        """How many are committed, of all its queries."""
        return sum(map(_batches_in, (self._checkpoint, *self._checkpoint.glob("*"))))

    def send(self, number: signal.Signals) -> None:
        """To all of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """All of it at once, as when the machine dies."""
        self.send(signal.SIGKILL)
        self.wait(30)

    def stop(self, timeout_s: float = 60) -> int:
        """Its exit code after it was asked to end; only the process that was started is asked."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def last_words(self) -> str:
        """Why it ended, where a line of its log says so."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return next((line for line in reversed(lines) if "Error" in line or "failed" in line or "xception" in line), "")

    def said(self) -> str:
        """The end of it."""
        logs = (file for file in (self.log, self.log.with_name("spark.log")) if file.exists())
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in logs)


def _batches_in(checkpoint: Path) -> int:
    with suppress(FileNotFoundError, NotADirectoryError):
        return sum(name.isdigit() for name in os.listdir(checkpoint / "commits"))
    return 0


def executors(job: Job) -> list[int]:
    """JVMs that run tasks for the job."""
    return [pid for pid in descendants(job.pid) if b"CoarseGrainedExecutorBackend" in _command_line(pid)]


def workers(job: Job) -> list[int]:
    """Python processes that run tasks."""
    return [pid for pid in descendants(job.pid) if b"pyspark.daemon" in _command_line(pid)]


def descendants(pid: int) -> Iterator[int]:
    """All processes below this one, as they are now."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                parent = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(entry))
    left = [pid]
    while left:
        found = children.get(left.pop(), [])
        yield from found
        left += found


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_bytes()
    return b""


def moment(job: Job, random: Random, timeout_s: float = 300) -> None:
    """Until a random moment: mostly while batches are being made, at times while the job is still starting."""
    if random.random() >= KILLED_EARLY:
        began, before = time.monotonic(), job.batches()
        while job.batches() == before and job.runs:
            assert time.monotonic() - began < timeout_s, f"no batch in {timeout_s:.0f} s:\n{job.said()}"
            time.sleep(0.02)
    time.sleep(random.uniform(0, 3))
