"""Runs many seeds on several processes, with one progress bar."""

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import NamedTuple, Protocol, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

CHUNK = 10  # seeds a process takes at once


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
    if jobs <= 1:
        yield from map(run_chunk, chunks)
        return
    waiting = iter(chunks)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: set[Future[tuple[T, list[Failed]]]] = {
            pool.submit(run_chunk, chunk) for chunk in itertools.islice(waiting, jobs + 1)
        }
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            running |= {pool.submit(run_chunk, chunk) for chunk in itertools.islice(waiting, len(done))}
            for future in done:
                yield future.result()


def search(
    run_chunk: RunChunk[T], chunks: Iterable[Sequence[int]], nothing: T, jobs: int, console: Console, total: int | None
) -> tuple[T, list[Failed]]:
    """Runs them all and shows how far it is, on a terminal; what fails is printed at once."""
    totals, failures = nothing, list[Failed]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=total)
        for found, failed in run_many(run_chunk, chunks, jobs):
            totals = totals.plus(found)
            failures += failed
            for failure in failed:
                progress.console.print(failure.message, markup=False, highlight=False)
            progress.update(task, advance=found.seeds, description=f"seeds, {len(failures)} failed")
    return totals, sorted(failures)
