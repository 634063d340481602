"""Runs many seeds on several processes, with one progress bar.

Each chunk of seeds has a process of its own, forked from this one, which has imported all there is to import and has no other thread.
Nothing is collected in it: to find what a run of the cluster leaves, and to take it apart, costs a tenth of the run, and the kernel takes
back all at once. The first few seeds run in this one: what the interpreter learns of the code, and all that is made once, the others have from
the start, which is another tenth of a brief run.
"""

import gc
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from typing import NamedTuple, Protocol, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

CHUNK = 25  # seeds a process takes at once, of 3 (brief) or 10 MB each
WARMING = 3  # seeds that are run before there are other processes


class Failed(NamedTuple):
    """A failure as it comes from another process."""

    seed: int
    invariant: str
    message: str


class Sum(Protocol):
    """What a number of seeds came to."""

    @property
    def seeds(self) -> int: ...

    def plus(self, other: Self) -> Self: ...


T = TypeVar("T", bound=Sum)
RunChunk = Callable[[Sequence[int]], tuple[T, list[Failed]]]
"""Runs seeds in its own process; a function of a module, so that it can be sent there."""


def chunks_of(first: int, count: int | None, minutes: float | None = None) -> Iterator[list[int]]:
    """Seeds from ``first`` on: ``count`` of them, or as many as begin within ``minutes``."""
    deadline_s = time.monotonic() + minutes * 60 if minutes is not None else None
    seed = first
    while deadline_s is None or time.monotonic() < deadline_s:
        left = CHUNK if count is None else min(CHUNK, first + count - seed)
        if left <= 0:
            return
        yield list(range(seed, seed + left))
        seed += left


def run_many(run_chunk: RunChunk[T], chunks: Iterable[Sequence[int]], jobs: int) -> Iterator[tuple[T, list[Failed]]]:
    """Runs chunks of seeds on ``jobs`` processes; answers come as they are ready."""
    waiting = iter(chunks)
    for first in itertools.islice(waiting, 1):
        yield run_chunk(first[:WARMING])
        waiting = itertools.chain(filter(None, [first[WARMING:]]), waiting)
    if jobs <= 1:
        yield from map(run_chunk, waiting)
        return
    context = multiprocessing.get_context("fork")
    running = [_Runner(context, run_chunk, chunk) for chunk in itertools.islice(waiting, jobs)]
    try:
        while running:
            ready = wait([each.answer for each in running])
            for each in [each for each in running if each.answer in ready]:
                running.remove(each)
                running += (_Runner(context, run_chunk, chunk) for chunk in itertools.islice(waiting, 1))
                yield each.result()
    finally:
        for each in running:
            each.end()


class _Runner:
    """A process that runs one chunk."""

    def __init__(self, context: ForkContext, run_chunk: RunChunk[T], chunk: Sequence[int]) -> None:
        self.answer, theirs = context.Pipe(duplex=False)
        self._chunk = chunk
        self._process: ForkProcess = context.Process(target=_run, args=(theirs, run_chunk, chunk), daemon=True)
        self._process.start()
        theirs.close()

    def result(self) -> tuple[T, list[Failed]]:
        """What it answered. RuntimeError where it ended without: its own words are on stderr."""
        try:
            answer: tuple[T, list[Failed]] = self.answer.recv()
            return answer
        except EOFError:
            self._process.join()
            seeds = f"{self._chunk[0]} to {self._chunk[-1]}"
            raise RuntimeError(f"the process for seeds {seeds} ended with {self._process.exitcode}") from None
        finally:
            self.end()

    def end(self) -> None:
        self._process.terminate()
        self._process.join()
        self.answer.close()


def _run(answer: "Connection[object, object]", run_chunk: RunChunk[T], chunk: Sequence[int]) -> None:
    """In that process."""
    gc.disable()
    answer.send(run_chunk(chunk))


def search(
    run_chunk: RunChunk[T],
    chunks: Iterable[Sequence[int]],
    nothing: T,
    jobs: int,
    console: Console,
    total: int | None,
) -> tuple[T, list[Failed]]:
    """Runs them all and shows how far it is, on a terminal; what fails is printed at once."""
    totals, failures = nothing, list[Failed]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Without auto_refresh it has no thread, which could hold a lock at a fork.
    with Progress(*columns, console=console, disable=not console.is_terminal, auto_refresh=False) as progress:
        task = progress.add_task("seeds", total=total)
        for found, failed in run_many(run_chunk, chunks, jobs):
            totals = totals.plus(found)
            failures += failed
            for failure in failed:
                progress.console.print(failure.message, markup=False, highlight=False)
            progress.update(task, advance=found.seeds, description=f"seeds, {len(failures)} failed", refresh=True)
    return totals, sorted(failures)
