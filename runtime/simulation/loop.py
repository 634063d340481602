"""The deterministic event loop: asyncio's interface, virtual time, one seed.

Ordinary asyncio code runs in it unchanged: what asks `asyncio.get_running_loop()` for servers, connections, timers,
tasks and executors gets them here, on simulated machines. Time passes only when nothing is left to run, and then at
once to the next timer, so an idle hour costs no more than its timers.

Order: within one process, callbacks run first in, first out, as asyncio documents. Between processes, and between
timers due at the same instant, the seed decides: that is where races hide.
"""

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple

from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.network import Network
from ottla.runtime.simulation.node import SimulatedNode
from ottla.runtime.simulation.process import PROCESS, ExceptionHandler, Process, SimulatedHandle
from ottla.runtime.simulation.trace import NoTrace, Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_STEPS_PER_INSTANT_MAX = 1_000_000
_CANCELLED_TIMERS_MIN = 1000
_HANDLE: Final = 3


class DeadlockError(Exception):
    """Nothing will ever happen again, and the run is not over. The text lists what waits."""


class LivelockError(Exception):
    """The program ran on and on without letting time pass."""


class TimeLimitError(Exception):
    """The run did not end within its virtual time. The text lists what waits."""


class SimulationLoop(asyncio.BaseEventLoop):
    """One loop for all simulated machines. ``harness`` is the process of whoever runs the simulation."""

    _stopping: bool  # the base class's, not in its stub

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.set_debug(False)
        self.seed = seed
        self.now_ns = 0
        self.trace = Trace()
        self.unhandled: list[dict[str, Any]] = []
        self.nodes: dict[str, SimulatedNode] = {}
        self.overrides: dict[str, list[object]] = {}
        self._draw = self.rng("scheduler").random
        self._timers: list[tuple[int, float, int, SimulatedHandle]] = []
        self._timers_set = 0
        self._timers_cancelled = 0
        self.limit_ns: int | None = None
        self._steps_this_instant = 0
        self._putting_away = False
        self._kept: list[asyncio.Task[Any]] = []
        self._runnable: list[Process] = []
        self._owners: weakref.WeakKeyDictionary[asyncio.Task[Any], Process] = weakref.WeakKeyDictionary()
        self.network = Network(self)
        self.harness = self.create_node("harness").boot()
        self._current = self.harness

    def leave_untraced(self) -> None:
        """Before it runs. What happens is the same, and is neither hashed nor remembered."""
        self.trace = NoTrace()

    def rng(self, purpose: str) -> Random:
        """A generator of its own for each purpose, so that one more draw here changes nothing there."""
        return Random(f"{self.seed}/{purpose}")  # noqa: S311 - simulation, not secrets

    def create_node(self, name: str) -> SimulatedNode:
        """A new machine, switched on, with an empty disk and nothing running. Its name is its host name."""
        if name in self.nodes:
            raise ValueError(f"there is a node {name} already")
        node = self.nodes[name] = SimulatedNode(self, name, len(self.nodes))
        return node

    # --- time and callbacks: asyncio's interface

    def time(self) -> float:
        return self._current.clock.local_ns(self.now_ns) / 1e9

    def wall_ns(self) -> int:
        """The calendar of the machine whose code runs, in nanoseconds since 1970."""
        return self._current.node.clock.wall_ms(self.now_ns) * 1_000_000

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        if context is None:
            process, context = self._current, copy_context()
        else:
            process = context.get(PROCESS, self.harness)
        handle = SimulatedHandle(process, callback, args, context)
        self._make_ready(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        return self.call_soon(callback, *args, context=context)  # there is one thread

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> SimulatedHandle:
        if context is None:
            process, context = self._current, copy_context()
        else:
            process = context.get(PROCESS, self.harness)
        local_ns = round(when * 1e9)
        handle = SimulatedHandle(process, callback, args, context, local_ns)
        self._set_timer(process.clock.global_ns(local_ns), handle)
        return handle

    def at_ns(
        self,
        when_ns: int,
        process: Process,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> SimulatedHandle:
        """Runs ``callback`` at a moment of the simulation's own time: what the network and the faults use."""
        handle = SimulatedHandle(process, callback, args, context or process.context)
        self._set_timer(when_ns, handle)
        return handle

    def _make_ready(self, handle: SimulatedHandle) -> None:
        process = handle.process
        if process.dead:
            process.remains.append(handle)
            return
        ready = process.ready
        if not ready and not process.paused:
            self._runnable.append(process)
        ready.append(handle)

    def _set_timer(self, when_ns: int, handle: SimulatedHandle) -> None:
        if handle.process.dead:
            handle.process.remains.append(handle)
            return
        handle._scheduled = True
        self._timers_set += 1
        due_ns = when_ns if when_ns > self.now_ns else self.now_ns
        heappush(self._timers, (due_ns, self._draw(), self._timers_set, handle))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if not handle._scheduled:  # type: ignore[attr-defined] # asyncio's own mark, not in its stub
            return
        self._timers_cancelled += 1
        if self._timers_cancelled > max(_CANCELLED_TIMERS_MIN, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if not entry[_HANDLE]._cancelled]
            heapify(self._timers)
            self._timers_cancelled = 0

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        process = self._current if context is None else context.get(PROCESS, self._current)
        # asyncio numbers tasks for the whole interpreter; a name must not depend on earlier runs.
        task = super().create_task(coro, name=str(name or process.next_task_name()), context=context)
        self._owners[task] = process
        if process.dead:
            process.remains.append(task)
        return task

    def tasks_of(self, process: Process) -> list["asyncio.Task[Any]"]:
        """The process's unfinished tasks, by name."""
        tasks = [task for task, owner in self._owners.items() if owner is process and not task.done()]
        return sorted(tasks, key=lambda task: task.get_name())

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Runs ``func`` here, after a delay of the machine's: what it promises, it promises at its end."""
        future: asyncio.Future[T] = self.create_future()
        process = self._current
        self.at_ns(self.now_ns + process.node.draw_executor_ns(), process, _execute, future, func, args)
        return future

    def set_exception_handler(self, handler: ExceptionHandler | None) -> None:
        self._current.exception_handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Every one is kept in ``unhandled``, with the node's name: a run can be failed for it."""
        process = self._current
        self.unhandled.append({**context, "node": process.node.name, "time_ns": self.now_ns})
        if self._putting_away:
            return
        error = context.get("exception")
        self.trace.event(self.now_ns, process.node.name, "unhandled", context["message"], type(error).__name__)
        if process.exception_handler is not None:
            process.exception_handler(self, context)
        elif not process.dead:
            super().call_exception_handler(context)

    # --- the network: asyncio's interface

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return self.network.listen(self._current, protocol_factory, host, port, **options)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return await self.network.connect(self._current, protocol_factory, host, port, **options)

    def add_reader(self, fd: Any, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Of listening sockets only."""
        fd.watch(partial(callback, *args))

    def remove_reader(self, fd: Any) -> bool:
        return bool(fd.unwatch())

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **options: Any) -> Any:
        return self.network.attach(protocol_factory, sock, **options)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return self.network.addresses(self._current, host, port)

    # --- whose code runs

    @property
    def current_process(self) -> Process:
        return self._current

    @contextmanager
    def acting_as(self, process: Process) -> Iterator[None]:
        """For the length of the block, new callbacks belong to ``process`` and time is its machine's."""
        before, self._current = self._current, process
        try:
            yield
        finally:
            self._current = before

    def pause(self, process: Process) -> None:
        if process.ready and not process.paused and not process.dead:
            self._runnable.remove(process)
        process.paused = True

    def resume(self, process: Process) -> None:
        if process.ready and process.paused and not process.dead:
            self._runnable.append(process)
        process.paused = False

    def end(self, process: Process) -> None:
        """No line of the process runs any more. Its timers are thrown away as they come up."""
        self.pause(process)
        process.end()

    def clock_changed(self, node: SimulatedNode) -> None:
        """Moves the node's timers to where its clock now says they are."""
        moved = []
        for when_ns, draw, number, handle in self._timers:
            if handle.local_ns is not None and handle.process.node is node:
                when_ns = max(self.now_ns, node.clock.global_ns(handle.local_ns))
            moved.append((when_ns, draw, number, handle))
        heapify(moved)
        self._timers = moved

    # --- running

    def _run_once(self) -> None:
        """Called by `run_forever` until `stop`: runs whole instants, to save the calls in between."""
        runnable, step = self._runnable, self._step
        while not self._stopping:
            if runnable:
                step()
            else:
                self._pass_time()

    def _step(self) -> None:
        runnable = self._runnable
        index = 0 if len(runnable) == 1 else int(self._draw() * len(runnable))
        process = runnable[index]
        handle = process.ready.popleft()
        if not process.ready:
            runnable[index] = runnable[-1]
            runnable.pop()
        if handle._cancelled:
            return
        self._steps_this_instant += 1
        if self._steps_this_instant > _STEPS_PER_INSTANT_MAX:
            raise LivelockError(f"{_STEPS_PER_INSTANT_MAX} callbacks at one instant; the last one was {handle!r}")
        self.trace.step(self.now_ns, process.node.number)
        self._current = process
        try:
            handle._context.run(handle._callback, *handle._args)
        except SimulatedCrash:
            if not process.dead:  # it used what a dead process left behind
                raise
        except (SystemExit, KeyboardInterrupt) as error:
            if process is self.harness or isinstance(error, KeyboardInterrupt):
                raise
            self._current = self.harness
            process.node.exited(error)
        except BaseException as error:  # noqa: BLE001 - as asyncio does: a callback's failure is the handler's business
            self.call_exception_handler({"message": f"exception in {handle!r}", "exception": error, "handle": handle})
        finally:
            self._current = self.harness

    def _pass_time(self) -> None:
        """Moves to the next instant at which something is due, and makes everything due then ready."""
        self._steps_this_instant = 0
        timers = self._timers
        while timers and (timers[0][_HANDLE]._cancelled or timers[0][_HANDLE].process.dead):
            self._drop_timer(heappop(timers)[_HANDLE])
        if not timers:
            raise DeadlockError(f"nothing is due any more (seed {self.seed})\n{self.waiting()}")
        if self.limit_ns is not None and timers[0][0] > self.limit_ns:
            raise TimeLimitError(f"not over after {self.limit_ns / 1e9} s (seed {self.seed})\n{self.waiting()}")
        self.now_ns = now_ns = timers[0][0]
        while timers and timers[0][0] == now_ns:
            handle = heappop(timers)[_HANDLE]
            handle._scheduled = False
            if handle._cancelled:
                self._drop_timer(handle)
            else:
                self._make_ready(handle)

    def _drop_timer(self, handle: SimulatedHandle) -> None:
        if handle._cancelled:
            self._timers_cancelled = max(0, self._timers_cancelled - 1)
        else:
            handle.process.remains.append(handle)

    def waiting(self) -> str:
        """The unfinished tasks of every living process, each with the line it waits at."""
        lines = []
        for node in self.nodes.values():
            if node.process is not None and not node.process.dead:
                state = " (paused)" if node.process.paused else ""
                lines.append(f"{node.name}{state}")
                lines += [f"  {task.get_name()}: {_where(task)}" for task in self.tasks_of(node.process)]
        return "\n".join(lines)

    # --- the end

    def keep_unfinished_tasks(self) -> None:
        """Before garbage is collected again: a task that only waits for itself is garbage, and would be unwound."""
        self._kept = [task for task in self._owners if not task.done()]

    def close(self) -> None:
        """Ends every process and puts its coroutines away; what their `finally` blocks do then has no effect."""
        if self.is_closed():
            return
        self._putting_away = True
        remains: list[object] = [*self._kept, *(entry[_HANDLE] for entry in self._timers)]
        for node in self.nodes.values():
            node.shut_down()
            remains += node.take_remains()
        for thing in remains:
            if isinstance(thing, asyncio.Task):
                _put_away(thing)
        self._timers.clear()
        self._kept.clear()
        super().close()


def _execute(future: "asyncio.Future[T]", function: Callable[..., T], args: tuple[Any, ...]) -> None:
    if future.cancelled():
        return
    try:
        result = function(*args)
    except SimulatedCrash:
        raise
    except BaseException as error:  # noqa: BLE001 - an executor hands every failure to its caller
        future.set_exception(error)
    else:
        future.set_result(result)


def _where(task: "asyncio.Task[Any]") -> str:
    """The innermost line of our own at which the task waits."""
    awaited: Any = task.get_coro()
    frames = []
    while awaited is not None and (frame := getattr(awaited, "cr_frame", None)) is not None:
        frames.append(f"{awaited.__qualname__} ({frame.f_code.co_filename}:{frame.f_lineno})")
        awaited = awaited.cr_await
    return " > ".join(frames) or repr(awaited)


def _put_away(task: "asyncio.Task[Any]") -> None:
    """Unwinds a coroutine that will never go on, however often its `finally` blocks await something."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own mark, not in its stub
    task._log_traceback = False
    coroutine: Any = task.get_coro()
    for _ in range(100):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001, S112 - whatever the dead say
            continue
        return
