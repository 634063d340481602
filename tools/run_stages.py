"""Runs stages (targets of the Makefile) side by side and tells what each took.

run_stages.py --first "setup" --first "tools" --alone "seeds" "lint types" "unit simulation" "chaos wheel"

Each argument is a lane: its stages run one after another, and all lanes beside each other. Lanes of what mostly waits (for nodes, for
downloads) and of what computes fill each other's gaps. What must be there before all others is ``--first``; when that fails, nothing else is
begun. ``--first`` may be said of several lanes. What computes on all cores by itself runs ``--alone``, between those and the others: beside them it
takes half as much CPU again, for they share the processors' caches. Elsewhere a stage that fails stops no other: its output is printed at once and whole, one that succeeds prints a line.
At the end, also after Ctrl-C, a table. Exit code 1 when a stage failed, 130 when it was interrupted.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from threading import Event

POLL_S = 0.1
END_TIMEOUT_S = 60.0
"""How long an interrupted stage may clean up: tests stop the nodes they started."""


class Stage:
    """One target; what it prints goes to a file until it is known whether anybody wants to read it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.result = "not begun"
        self.took_s = self.cpu_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None  # while it runs
        self._began = 0.0
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - gone with the runner

    def begin(self) -> None:
        """In a process group of its own: it is ended with all its children, and by nobody's Ctrl-C but through us."""
        command = ["make", "--no-print-directory", self.name]
        environment = {name: text for name, text in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )

    @property
    def runs(self) -> bool:
        return self._process is not None

    def has_ended(self) -> bool:
        """Collects the process once it is through, with the CPU of all that it waited for."""
        if self._process is None:
            return True
        pid, status, used = os.wait4(self._process.pid, os.WNOHANG)
        if not pid:
            return False
        self._process.returncode = os.waitstatus_to_exitcode(status)  # it would look for itself otherwise
        self.send(signal.SIGKILL)  # to what it left behind
        self._process = None
        self.took_s = time.monotonic() - self._began
        self.cpu_s = used.ru_utime + used.ru_stime
        self.result = "ok" if status == 0 else "FAILED"
        return True

    def send(self, number: signal.Signals) -> None:
        """To the whole group."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def output(self) -> str:
        self._output.seek(0)
        return self._output.read().decode("utf-8", "replace")

    def line(self) -> str:
        return f"{self.name:<14}{self.took_s:>7.0f} s{self.cpu_s:>9.0f} s  {self.result}"


class Lane:
    """Stages, one after another."""

    def __init__(self, stages: list[Stage]) -> None:
        self._waiting = list(stages)
        self._running: Stage | None = None

    @property
    def at(self) -> str:
        """The stage that runs."""
        return self._running.name if self._running else ""

    def goes_on(self) -> bool:
        """Looks after the stage that runs, and begins the next; False when all are through."""
        if self._running and self._running.has_ended():
            tell(self._running)
            self._running = None
        if not self._running and self._waiting:
            self._running = self._waiting.pop(0)
            self._running.begin()
        return self._running is not None


def run(lanes: list[list[Stage]], interrupted: Event) -> None:
    """Until every lane is through, or ``interrupted``."""
    left = [Lane(lane) for lane in lanes]
    began = time.monotonic()
    while left and not interrupted.is_set():
        left = [lane for lane in left if lane.goes_on()]
        show(f"{time.monotonic() - began:.0f} s: {', '.join(filter(None, (lane.at for lane in left)))}")
        time.sleep(POLL_S)
    show("")


def show(what: str) -> None:
    """On a terminal, in one line that the next one takes the place of."""
    if sys.stdout.isatty():
        print(f"\r\033[K{what}", end="", flush=True)


def tell(stage: Stage) -> None:
    show("")
    if stage.result != "ok":
        print(f"--- {stage.name} FAILED ---\n{stage.output()}--- end of {stage.name} ---")
    print(stage.line(), flush=True)


def end(stages: list[Stage]) -> None:
    """Interrupts what runs, as the person at the terminal did with us; kills what does not listen."""
    for number, timeout_s in ((signal.SIGINT, END_TIMEOUT_S), (signal.SIGKILL, 5.0)):
        left = [stage for stage in stages if stage.runs]
        for stage in left:
            stage.send(number)
        deadline = time.monotonic() + timeout_s
        while left and time.monotonic() < deadline:
            for stage in [each for each in left if each.has_ended()]:
                stage.result = "interrupted"
                left.remove(stage)
            time.sleep(POLL_S)


def table(stages: list[Stage], began: float) -> str:
    total = time.monotonic() - began
    cpu = sum(stage.cpu_s for stage in stages)
    lines = [f"{'stage':<14}{'took':>9}{'CPU':>11}", *(stage.line() for stage in stages)]
    return "\n".join([*lines, f"{'all':<14}{total:>7.0f} s{cpu:>9.0f} s"])


def lanes_of(texts: list[str]) -> list[list[Stage]]:
    return [[Stage(name) for name in text.split()] for text in texts]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--first", action="append", default=[], metavar="LANE", help="a lane that runs before all others"
    )
    parser.add_argument(
        "--alone", action="append", default=[], metavar="LANE", help="a lane that runs next, beside no other"
    )
    parser.add_argument("lanes", nargs="+", metavar="LANE", help="names of stages, one after another")
    options = parser.parse_args()
    first, alone, lanes = lanes_of(options.first), lanes_of(options.alone), lanes_of(options.lanes)
    needed = [stage for lane in first for stage in lane]
    stages = needed + [stage for lane in alone + lanes for stage in lane]
    began = time.monotonic()
    interrupted = Event()  # looked at between two steps: a signal never comes between a process and our knowing of it
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: interrupted.set())
    run(first, interrupted)
    if all(stage.result == "ok" for stage in needed):
        for beside_each_other in [*([lane] for lane in alone), lanes]:
            run(beside_each_other, interrupted)
    if interrupted.is_set():
        print("interrupted: ending what runs", flush=True)
        end(stages)
    print(table(stages, began))
    if interrupted.is_set():
        return 130
    return 0 if all(stage.result == "ok" for stage in stages) else 1


if __name__ == "__main__":
    sys.exit(main())
