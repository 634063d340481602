"""One life of a simulated node's program: what belongs to it, and how it ends without running another line."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from ottla.runtime.simulation.loop import SimulationLoop
    from ottla.runtime.simulation.node import SimulatedNode

P = ParamSpec("P")
T = TypeVar("T")
ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

PROCESS: "ContextVar[Process]" = ContextVar("simulated_process")


class SimulatedHandle(asyncio.TimerHandle):
    """A callback, its context, and the process it belongs to.

    ``local_ns`` is the moment on the process's own clock for a timer the program set, None for everything else.
    """

    __slots__ = ("local_ns", "process")

    def __init__(
        self,
        process: "Process",
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        local_ns: int | None = None,
    ) -> None:
        # The base class would look for the caller's source line in debug mode; these fields are all it needs.
        self._loop = process.loop
        self._callback = callback
        self._args = args
        self._context = context
        self._when = 0.0 if local_ns is None else local_ns / 1e9
        self._scheduled = False
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self.process = process
        self.local_ns = local_ns

    def when(self) -> float:
        """uvloop, on which the program runs, has no such method on the handle of a timer that is due when it is set."""
        raise AttributeError("uvloop's handles may have no when(): remember the moment instead")

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Process:
    """Everything the loop holds for one life of a node's program.

    Killing it is forgetting its callbacks. Its coroutines are kept, not freed: freeing one would run its `finally`
    blocks. They are put away when the run ends and nothing they do matters any more.
    """

    def __init__(self, loop: "SimulationLoop", node: "SimulatedNode") -> None:
        self.loop = loop
        self.node = node
        self.clock = node.clock
        self.ready: deque[SimulatedHandle] = deque()
        self.dead = False
        self.paused = False
        self.exception_handler: ExceptionHandler | None = None
        self.remains: list[object] = []
        self._tasks_named = 0
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls ``function`` as the process's own code: what it schedules is this process's and dies with it."""
        with self.loop.acting_as(self):
            return self.context.copy().run(function, *args, **kwargs)

    def next_task_name(self) -> str:
        self._tasks_named += 1
        return f"{self.node.name}:task-{self._tasks_named}"

    def end(self) -> None:
        """Dies here and now. The caller has seen to the node's network and disk."""
        self.dead = True
        self.remains.extend(self.ready)
        self.ready.clear()
        self.remains.extend(self.loop.tasks_of(self))
