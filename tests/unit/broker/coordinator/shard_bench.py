"""What every shard on a bench has around it: records that are committed when the test says so, and a clock that stands until it is moved."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from ottla.broker.coordinator.decisions.effects import Done, Record, Undo
from ottla.runtime.errors import ErrorCode

TIME_MS = 1_800_000_000_000


class Replaying(Protocol):
    def replay(self, record: Record, place: int, producer_id: int = -1) -> Undo: ...


class ShardBench:
    """The effects of one shard. Who derives from it makes the ``shard``."""

    shard: Replaying

    def __init__(self, *, commits: bool) -> None:
        self.commits = commits
        """Whether records are committed as soon as they are written."""
        self.refuses = ErrorCode.NONE
        self.clock_ms, self.time_ms = 1_000, TIME_MS
        self.log: list[Record] = []
        self.written: list[int] = []
        """How many records were given together."""
        self.sizes: list[int] = []
        """And how many bytes."""
        self.notes: list[str] = []
        self.reminded = 0
        self._waiting: deque[tuple[Done, list[Undo]]] = deque()
        self._reminders: dict[Hashable, tuple[int, Callable[[], None]]] = {}

    # --- Effects ------------------------------------------------------------------------------------------------------

    def write(self, records: Sequence[Record], done: Done) -> None:
        if self.refuses:
            done(self.refuses)
            return
        undoes = []
        for each in records:
            undoes.append(self.shard.replay(each, len(self.log)))
            self.log.append(each)
        self.written.append(len(records))
        self.sizes.append(size_of(records))
        self._waiting.append((done, undoes))
        if self.commits:
            self.commit()

    def note(self, fact: str) -> None:
        self.notes.append(fact)

    def remind(self, name: Hashable, in_ms: int, call: Callable[[], None]) -> None:
        self.reminded += 1
        assert self.reminded < 100_000, "it spins"
        self._reminders[name] = self.clock_ms + in_ms, call

    def soon(self, call: Callable[[], None]) -> None:
        self.remind(("soon", self.reminded), 0, call)

    def forget(self, name: Hashable) -> None:
        self._reminders.pop(name, None)

    # --- the test's hands ---------------------------------------------------------------------------------------------

    @property
    def reminders(self) -> int:
        return len(self._reminders)

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """What is written is committed, or nobody knows."""
        while self._waiting:
            self._waiting.popleft()[0](error)

    def fail(self, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR, *, but: int = 0) -> None:
        """What was to be written cannot be: all of it ``but`` the first is undone, then told."""
        written = [self._waiting.popleft() for _ in range(min(but, len(self._waiting)))]
        unwritten, self._waiting = self._waiting, deque(written)
        for _, undoes in reversed(unwritten):
            for undo in reversed(undoes):
                undo()
                self.log.pop()
        for done, _ in unwritten:
            done(error)

    def wait(self, by_ms: int) -> None:
        """Time passes; reminders come when they are due."""
        end_ms = self.clock_ms + by_ms
        while due := [
            (at_ms, index, name) for index, (name, (at_ms, _)) in enumerate(self._reminders.items()) if at_ms <= end_ms
        ]:
            at_ms, _, name = min(due)
            self._pass_until(at_ms)
            _, call = self._reminders.pop(name)
            call()
        self._pass_until(end_ms)

    def _pass_until(self, at_ms: int) -> None:
        passed_ms = max(at_ms - self.clock_ms, 0)
        self.clock_ms += passed_ms
        self.time_ms += passed_ms


def size_of(records: Sequence[Record]) -> int:
    return sum(len(each.key) + len(each.value or b"") for each in records)
