"""What a member did and when, a line each, in a file that outlives a kill -9."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """``at_ns`` by a clock that all processes of a machine share. A record's ``value`` is what it says it is."""

    at_ns: int
    member: str
    what: str
    partition: int
    offset: int = -1
    value: int = -1


class Diary:
    """Written by one process; one ``write`` a line, so a line is there or not."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, partition: int, offset: int = -1, value: int = -1) -> None:
        os.write(self._file, f"{time.monotonic_ns()} {what} {partition} {offset} {value}\n".encode())

    def of_all(self, what: str, partitions: Iterable[int]) -> None:
        for each in partitions:
            self.write(what, each)


def read(home: Path) -> list[Entry]:
    """All diaries there, in the order of time."""
    return sorted(entry for path in home.glob("*.diary") for entry in _entries(path))


def _entries(path: Path) -> Iterator[Entry]:
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            at_ns, what, *numbers = line.split()
            partition, offset, value = map(int, numbers)
            yield Entry(int(at_ns), path.stem, what, partition, offset, value)
