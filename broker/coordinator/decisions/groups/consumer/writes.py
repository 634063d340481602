"""What one request writes, in several steps: each is decided upon the state that the one before has made."""

from collections.abc import Sequence

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
        self._gathered: list[Record] = []
        self._gathered_bytes = 0

    def write(self, records: Sequence[Record]) -> None:
        """Together or not at all."""
        if not self.error and records:
            self._write(records)

    def gather(self, record: Record) -> None:
        """To be written with those before it until `flush`, or before, where they are many: what a part of them says must do no harm."""
        size = len(record.key) + len(record.value or b"")
        if self._gathered and self._gathered_bytes + size > PIECE_BYTES_MAX:
            self.flush()
        self._gathered.append(record)
        self._gathered_bytes += size

    def flush(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        self.write(gathered)

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
