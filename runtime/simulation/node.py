"""A simulated machine: a name on the network, a disk, clocks, and at most one running program."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.runtime.clock_loop import LoopClock
from ottla.runtime.host import Host
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.node_clock import NodeClock
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.simulation.process import Process
from ottla.runtime.simulation.store import SimulatedStore
from ottla.runtime.simulation.trace import NoTrace
from ottla.runtime.sync_later import SyncLater

if TYPE_CHECKING:
    from ottla.runtime.simulation.loop import SimulationLoop

Main = Callable[[Host], Coroutine[Any, Any, object]]

_EXECUTOR_DELAY_NS = (20_000, 500_000)  # a thread's round trip, a quick fdatasync


class SimulatedNode:
    """Switched on when created. `start` runs a program on it; a program that returns or raises has exited.

    Two ways to die: `kill` is kill -9 (the kernel lives: unsynced writes stay, peers see the connections close);
    `crash` is a power cut (unsynced writes are at the mercy of the seed, peers hear nothing).
    """

    def __init__(self, loop: "SimulationLoop", name: str, number: int) -> None:
        self.loop = loop
        self.name = name
        self.number = number
        self.address = f"10.0.{number // 250}.{number % 250 + 1}"
        self.up = True
        self.process: Process | None = None
        self.exit: BaseException | None = None
        self.rng: Random = loop.rng(f"node/{name}")
        self.clock = NodeClock(loop.now_ns, self.rng.randrange(10**12, 10**14))
        on_operation = None if isinstance(loop.trace, NoTrace) else self._trace_disk
        self.platter = Platter(loop.rng(f"disk/{name}"), on_operation)
        self.platter.now_ms = lambda: self.clock.wall_ms(loop.now_ns)
        self.slowness = 1
        self._main: Main | None = None
        self._remains: list[object] = []
        self.host: Host | None = None

    # --- the program

    def boot(self) -> Process:
        """A new process with nothing in it, for code that is called from outside (`process.run`)."""
        assert self.process is None, f"{self.name} runs a program already"
        self.switch_on()
        self.process = Process(self.loop, self)
        disk = SimulatedDisk(self.platter)
        clock = LoopClock(self.loop, lambda: self.clock.wall_ms(self.loop.now_ns))
        self.host = Host(
            clock,
            Random(self.rng.getrandbits(64)),  # noqa: S311 - simulation
            disk,
            partial(SimulatedStore, disk),
            SyncLater(),
        )
        return self.process

    def start(self, main: Main) -> "asyncio.Task[Any]":
        """Runs ``main(host)`` in a new process. Its end, however it comes, is the process's end."""
        self._main = main
        self.exit = None
        process = self.boot()
        assert self.host is not None
        self._log("start")
        task: asyncio.Task[Any] = process.run(lambda host: self.loop.create_task(main(host)), self.host)
        task.add_done_callback(partial(self._main_ended, process), context=self.loop.harness.context)
        return task

    def restart(self) -> "asyncio.Task[Any]":
        """Starts the last program again, on what the disk holds now. The node is killed first if it runs."""
        assert self._main is not None, f"{self.name} was never started"
        self.kill()
        return self.start(self._main)

    def _main_ended(self, process: Process, task: "asyncio.Task[Any]") -> None:
        if process is not self.process:
            return
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.loop.call_exception_handler({"message": f"{self.name} failed", "exception": error, "task": task})
        self.exited(error)

    def exited(self, error: BaseException | None) -> None:
        """The program ended by itself."""
        self.exit = error
        self._log("exit", type(error).__name__)
        self._end_process(quiet=False)

    # --- death and sleep

    def kill(self) -> None:
        """kill -9. Nothing happens when nothing runs. Raises SimulatedCrash when called by the node's own code."""
        if self.process is not None:
            self._log("kill")
            self._end_process(quiet=False)

    def crash(self) -> None:
        """Power cut. The machine is off until `switch_on`, `start` or `restart`. Raises SimulatedCrash as `kill` does."""
        if not self.up:
            return
        self._log("crash")
        self.up = False
        self.platter.power_loss()
        if self.process is not None:
            self._end_process(quiet=True)

    def switch_on(self) -> None:
        """Power returns; nothing runs yet. Peers that still send to the old connections learn that they are gone."""
        if not self.up:
            self.up = True
            self.loop.network.machine_is_back(self)

    def crash_at_disk_operation(self, number: int) -> None:
        """A power cut in the middle of the ``number``-th change to the disk from now (1 is the next one)."""
        self.platter.crash_at_operation(number, self._crash_from_disk)

    def _crash_from_disk(self) -> None:
        self._log("crash", "in a disk operation")
        self.up = False
        if self.process is not None:
            self._forget_process(quiet=True)

    def pause(self) -> None:
        """SIGSTOP. Timers and data that come due wait until `resume`."""
        if self.process is not None:
            self._log("pause")
            self.loop.pause(self.process)

    def resume(self) -> None:
        if self.process is not None and self.process.paused:
            self._log("resume")
            self.loop.resume(self.process)

    def _end_process(self, *, quiet: bool) -> None:
        process = self.process
        self._forget_process(quiet=quiet)
        if process is self.loop.current_process:
            raise SimulatedCrash(self.name)

    def _forget_process(self, *, quiet: bool) -> None:
        process, self.process, self.host = self.process, None, None
        assert process is not None
        self.loop.end(process)
        self._remains.append(process)
        self.platter.close_sessions()
        self.loop.network.process_ended(process, quiet=quiet)

    def shut_down(self) -> None:
        """The end of the run."""
        if self.process is not None:
            self._forget_process(quiet=True)

    def take_remains(self) -> list[object]:
        """What dead processes left, for the loop to put away."""
        processes, self._remains = self._remains, []
        return [thing for process in processes if isinstance(process, Process) for thing in process.remains]

    # --- clocks and speed

    def set_clock_rate(self, rate: float) -> None:
        """1.0 keeps time; 1.001 gains a millisecond a second."""
        self._log("clock-rate", rate)
        self.clock.set_rate(self.loop.now_ns, rate)
        self.loop.clock_changed(self)

    def jump_wall_clock(self, milliseconds: int) -> None:
        self._log("clock-jump", milliseconds)
        self.clock.jump_wall(milliseconds)

    def draw_executor_ns(self) -> int:
        """How long the next executor call (thread, fdatasync) takes on this machine."""
        return self.rng.randint(*_EXECUTOR_DELAY_NS) * self.slowness

    def _log(self, kind: str, *detail: object) -> None:
        self.loop.trace.event(self.loop.now_ns, self.name, kind, *detail)

    def _trace_disk(self, operation: str, path: str, *detail: int) -> None:
        loop = self.loop
        loop.trace.operated(loop.now_ns, self.name, operation, path, detail)
