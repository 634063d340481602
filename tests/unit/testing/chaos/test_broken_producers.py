"""confluent-kafka sets a fatal error and calls back with it: whatever is called then fails once, with an error that nobody raised."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.testing.chaos.workloads import clients
from ottla.testing.chaos.workloads.clients import Counted, Stream
from ottla.testing.checker import Outcome
from ottla.testing.checker.operations import Operation


class Notes:
    def __init__(self) -> None:
        self.written: list[Operation] = []

    def write(self, operation: Operation) -> None:
        self.written.append(operation)


class Fatal:
    """Tells of its records while a fatal error is set."""

    def __init__(self, trouble: list[str]) -> None:
        self._trouble = trouble
        self._under_way: list[Callable[..., None]] = []

    def __len__(self) -> int:
        return len(self._under_way)

    def produce(self, *_: Any, on_delivery: Callable[..., None], **__: Any) -> None:
        self._under_way.append(on_delivery)

    def flush(self, *_: Any) -> int:
        told, self._under_way = self._under_way, []
        for each in told:
            self._trouble.append("fatal")
            each(None, SimpleNamespace(offset=lambda: 7))
        raise SystemError("flush returned NULL without setting an exception")

    poll = flush

    def purge(self, *_: Any, **__: Any) -> None:
        pass


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    trouble: list[str] = []
    clock = iter(range(1, 1000))

    def now() -> int:
        if trouble:
            raise SystemError(f"returned a result with an exception set: {trouble.pop()}")
        return next(clock)

    monkeypatch.setattr(clients, "now", now)
    monkeypatch.setattr(clients, "producer", lambda *_, **__: Fatal(trouble))
    return Stream("p", "", Counted(Notes()))  # type: ignore[arg-type]  # it only writes


def test_what_came_of_a_record_is_noted_also_beside_a_fatal_error(stream: Stream) -> None:
    sent = [stream.send("t", 0) for _ in range(2)]
    stream.close()
    assert [each.outcome for each in sent] == [Outcome.OK, Outcome.OK]
    assert stream._history.acknowledged == 2


def test_a_producer_that_broke_so_is_followed_by_another(stream: Stream) -> None:
    stream.send("t", 0)
    stream.poll(0.001)
    assert stream.send("t", 0).producer == "p.1"
