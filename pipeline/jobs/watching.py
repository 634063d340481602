"""What a person sees of a query at work: a table of rates that stays in place on a terminal, a line a batch elsewhere. On standard error."""

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

import click

from ottla.cli.durations import words
from ottla.pipeline.jobs.batches import Batch, Totals, left_by_topic, line, record

TOPICS_SHOWN = 20
REFRESHES_A_SECOND = 4


class Work(NamedTuple):
    """What the query is at."""

    is_busy: bool
    done: int = 0
    total: int = 0
    """Tasks of the batch, as far as Spark has planned them."""

    @property
    def words(self) -> str:
        if not self.is_busy:
            return "waiting for records"
        return f"at work: {self.done} of {self.total} tasks done" if self.total else "at work"


class View(Protocol):
    """Where batches are shown."""

    def batch(self, batch: Batch, totals: Totals) -> None: ...

    @property
    def is_live(self) -> bool:
        """Whether it wants to be told what the query is at."""
        ...

    def tick(self, work: Work) -> None:
        """Some tenths of a second have passed."""

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


def view_of(title: str) -> View:
    """A table where there is a terminal, and rich."""
    if sys.stderr.isatty():
        try:
            return LiveView(title)
        except ImportError:
            pass
    return LineView(title)


class LineView:
    """For logs."""

    def __init__(self, title: str) -> None:
        self.say(title)

    def batch(self, batch: Batch, totals: Totals) -> None:
        self.say(line(batch, totals.rate))

    is_live = False

    def tick(self, work: Work) -> None:
        """Nothing moves in a log."""

    def say(self, text: str) -> None:
        click.echo(text, err=True)

    def close(self) -> None:
        """Nothing to put away."""


class LiveView:
    """A table a topic, a bar where the end is known. Raises ImportError without rich."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title, self._since = title, time.monotonic()
        self._totals: Totals | None = None
        self._work = "starting the first batch"
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(self._drawn(), console=self._console, refresh_per_second=REFRESHES_A_SECOND)
        self._live.start()

    def batch(self, batch: Batch, totals: Totals) -> None:
        self._totals = totals
        self._live.update(self._drawn())

    is_live = True

    def tick(self, work: Work) -> None:
        if self._totals is not None:
            self._work = work.words
        self._live.update(self._drawn())

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)

    def close(self) -> None:
        self._live.update(self._drawn(is_over=True), refresh=True)
        self._live.stop()

    def _drawn(self, *, is_over: bool = False) -> Any:
        from rich.console import Group
        from rich.text import Text

        parts: list[Any] = [Text(f"{self._title}  ({words(time.monotonic() - self._since)})", style="bold")]
        totals = self._totals
        if totals is not None and totals.last is not None:
            parts += [_table(totals.last, totals), *_bar(totals), Text(line(totals.last, totals.rate), style="dim")]
        if not is_over:
            parts.append(Text(self._work, style="dim"))
        return Group(*parts)


def _table(batch: Batch, totals: Totals) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("topic", overflow="fold")
    for name in ("partitions", "read", "left", "offsets/s"):
        table.add_column(name, justify="right")
    left = left_by_topic(batch)
    for topic in list(left)[:TOPICS_SHOWN]:
        read = totals.read.get(topic, 0)
        table.add_row(
            topic,
            str(sum(name == topic for name, _ in batch.end)),
            f"{read:,}",
            f"{left[topic]:,}" if batch.latest else "-",
            f"{read / totals.seconds:,.0f}" if totals.seconds else "-",
        )
    if len(left) > TOPICS_SHOWN:
        table.add_row(f"and {len(left) - TOPICS_SHOWN} topics more")
    return table


def _bar(totals: Totals) -> list[Any]:
    from rich.progress_bar import ProgressBar

    read, left = sum(totals.read.values()), totals.last.left if totals.last else None
    return [ProgressBar(total=read + left, completed=read)] if left is not None and read + left > 0 else []


class Written:
    """--progress: a line of JSON a batch, in a file or on standard output."""

    def __init__(self, target: str | None) -> None:
        """Raises OSError."""
        self._file: TextIO | None = None
        if target is not None:
            self._file = sys.stdout if target == "stdout" else Path(target).open("a", encoding="utf-8")  # noqa: SIM115 - closed by close

    def write(self, batch: Batch) -> None:
        if self._file is not None:
            self._file.write(json.dumps(record(batch)) + "\n")
            self._file.flush()

    def close(self) -> None:
        if self._file not in (None, sys.stdout):
            assert self._file is not None
            self._file.close()
