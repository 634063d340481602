"""What one request writes, in several steps: each is decided upon the state that the one before has made."""

from collections.abc import Iterator, Sequence

from ottla.broker.coordinator.decisions.effects import Done, Effects, Record
from ottla.runtime.errors import ErrorCode

PIECE_BYTES_MAX = 64 << 10


class Writes:
    """Told once, when all steps are committed or one of them is not. After one that is refused nothing more is written."""

    def __init__(self, effects: Effects, done: Done) -> None:
        self._effects = effects
        self._done = done
        self._waiting = 1
        self.error = ErrorCode.NONE
        self.count = 0

    def write(self, records: Sequence[Record]) -> None:
        """Together or not at all."""
        if not self.error and records:
            self._write(records)

    def write_in_pieces(self, records: Sequence[Record]) -> None:
        """More than a batch may hold; what a part of them says must do no harm."""
        for piece in _pieces(records):
            self.write(piece)

    def close(self) -> None:
        """There are no more steps."""
        self._ended(ErrorCode.NONE)

    def write_nothing(self) -> None:
        """Waits for what others have written before, on which the answer stands."""
        self._write(())

    def _write(self, records: Sequence[Record]) -> None:
        self._waiting += 1
        self.count += len(records)
        self._effects.write(records, self._ended)

    def _ended(self, error: ErrorCode) -> None:
        self._waiting -= 1
        self.error = self.error or error
        if not self._waiting:
            self._done(self.error)


def _pieces(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    start = size = 0
    for at, record in enumerate(records):
        bytes_of_it = len(record.key) + len(record.value or b"")
        if size and size + bytes_of_it > PIECE_BYTES_MAX:
            yield records[start:at]
            start, size = at, 0
        size += bytes_of_it
    yield records[start:]
