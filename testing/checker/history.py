"""A history in a file: written while it happens, and read line by line."""

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

import msgspec

from ottla.testing.checker.operations import FOREVER, AnyOperation, Fault, Operation, Outcome, Unclean


class HistoryError(ValueError):
    """A line that is none of a history."""


class Recorder:
    """``with Recorder(path) as history``: any thread may write. A line is in the file when ``write`` returns, so it outlives a kill -9."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def write(self, operation: Operation) -> None:
        line = self._encoder.encode(operation) + b"\n"
        with self._lock:
            self._file.write(line)

    def fault(self, name: str, begin: int, end: int, detail: str = "") -> None:
        self.write(Fault(fault=name, begin=begin, end=end, outcome=Outcome.OK, detail=detail))

    def unclean(self, topic: str, partition: int, begin: int, end: int, from_offset: int = 0) -> None:
        """An unclean election happened in that time."""
        event = Unclean(topic=topic, partition=partition, begin=begin, end=end, from_offset=from_offset)
        event.outcome = Outcome.OK
        self.write(event)


def now() -> int:
    """The clock of a history that one machine writes."""
    return time.monotonic_ns()


Sort = TypeVar("Sort", bound=Operation, covariant=True)


class Line(NamedTuple, Generic[Sort]):
    """An operation, and where it stands: the first line is 1."""

    number: int
    operation: Sort


AnyLine = Line[AnyOperation]


def read(path: Path) -> Iterator[AnyLine]:
    """Each operation once, as its last line says. Raises HistoryError, OSError."""
    with path.open("rb") as lines:
        yield from parsed(lines)


def parsed(lines: Iterable[bytes]) -> Iterator[AnyLine]:
    """What was cut off in the last line is nothing: whoever wrote it was killed. Raises HistoryError."""
    decode = msgspec.json.Decoder(AnyOperation).decode

    def decoded() -> Iterator[AnyOperation]:
        broken = ""
        for number, line in enumerate(lines, 1):
            if broken:
                raise HistoryError(broken)
            try:
                yield decode(line)
            except msgspec.DecodeError as error:
                broken = f"line {number}: {error}"
                if line.endswith(b"\n"):
                    raise HistoryError(broken) from None

    return joined(decoded())


def joined(operations: Iterable[AnyOperation]) -> Iterator[AnyLine]:
    """Beginnings wait for what came of them, and come last if nobody says."""
    begun: dict[tuple[str, int], AnyLine] = {}
    for number, each in enumerate(operations, 1):
        if each.id < 0:
            yield Line(number, each)
            continue
        name = (each.process, each.id)
        if each.outcome is Outcome.UNKNOWN and each.end == FOREVER:
            begun[name] = Line(number, each)
        else:
            begun.pop(name, None)
            yield Line(number, each)
    yield from begun.values()
