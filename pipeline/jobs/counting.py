"""How far something is that counts: a bar that stays in place on a terminal, a line now and then elsewhere. On standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

LINE_EVERY_S = 5.0

Advance = Callable[[int], None]


@contextmanager
def counted(what: str, total: int) -> Iterator[Advance]:
    """Gives what tells how many more are done."""
    if sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError:
            pass
        else:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
                task = progress.add_task(what, total=total)
                yield lambda many: progress.advance(task, many)
            return
    yield Lines(what, total, time.monotonic).advance


class Lines:
    """For logs: nothing for what is done at once."""

    def __init__(self, what: str, total: int, clock: Callable[[], float]) -> None:
        self._what, self._total, self._clock = what, total, clock
        self._began = self._told = clock()
        self._done = 0

    def advance(self, many: int) -> None:
        self._done += many
        now = self._clock()
        if now - self._told >= LINE_EVERY_S:
            self._told = now
            click.echo(self.line(now), err=True)

    def line(self, now: float) -> str:
        rate = self._done / max(now - self._began, 1e-3)
        left = (self._total - self._done) / rate if rate else 0.0
        return f"{self._done:,} of {self._total:,} {self._what}, {rate:,.0f} a second, {left:.0f} s to go"
