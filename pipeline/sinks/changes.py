"""What tasks tell the driver, and what one commit adds to a table."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.pipeline.sinks.part_files import PartFile
from ottla.pipeline.sinks.ranges import Named, Ranges, join, named
from ottla.pipeline.sinks.schemas import Schema

NONE = -1
"""Where nothing is, the last offset."""


class Part(NamedTuple):
    """Of a table, from one task."""

    files: tuple[PartFile, ...]
    ranges: Ranges


@dataclass(frozen=True)
class Batch:
    """One commit: all of it is seen afterwards, or nothing."""

    app_id: str
    """Empty: it is not asked whether it came before."""
    version: int
    schema: Schema
    partition_by: tuple[str, ...]
    files: tuple[PartFile, ...]
    offsets: Named
    merge: bool = False
    overwrite: bool = False
    info: str = ""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def together(parts: Iterable[Part]) -> tuple[tuple[PartFile, ...], Named]:
    files: list[PartFile] = []
    found: Ranges = {}
    for part in parts:
        files += part.files
        join(found, part.ranges)
    return tuple(files), named(found)


class Commit(NamedTuple):
    """What a commit of the past says of itself."""

    version: int
    app_id: str
    batch: int
    offsets: Named
    rows: int
    time_ms: int
    info: str = ""
    """What the writer said with ``commitInfo``."""


class Compaction(NamedTuple):
    files_before: int
    files_after: int
    bytes: int


class Log(Protocol):
    """What is in a table: the driver's side of a format."""

    def check(self, schema: Schema, partition_by: tuple[str, ...], merge: bool, overwrite: bool) -> None:
        """Raise SchemaChanged now rather than after the rows are written."""

    def commit(self, batch: Batch) -> bool:
        """False: the batch was there already."""

    def holds(self, paths: set[str]) -> set[str]:
        """Which of these files the table is made of."""

    def commits(self, app_id: str) -> list[Commit]:
        """Those of that query that the log still tells of, oldest first."""


def beyond(batch: Batch, commits: Iterable[Commit]) -> list[str]:
    """Where a batch that is there already reaches further than all that its query committed from its number on, as far as that is told.

    Spark runs a batch again with the offsets that it had. One that reaches further was planned anew under a number that is taken.
    """
    is_all_told, known = False, dict[tuple[str, str], int]()
    for each in commits:
        is_all_told |= each.batch <= batch.version  # the oldest are forgotten first
        for place, last in _ends(each.offsets).items() if each.batch >= batch.version else ():
            known[place] = max(last, known.get(place, NONE))
    return [
        f"{topic}-{partition} to {last} (there: {known.get((topic, partition), NONE)})"
        for (topic, partition), last in _ends(batch.offsets).items()
        if last > known.get((topic, partition), NONE if is_all_told else last)
    ]


def _ends(offsets: Named) -> dict[tuple[str, str], int]:
    return {
        (topic, partition): last
        for topic, partitions in offsets.items()
        for partition, (_, last, _rows) in partitions.items()
    }
