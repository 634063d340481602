"""`ottla consume`: what of a batch counts as read when a signal comes. With brokers: tests/integration/test_groups.py."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.cli import consume
from ottla.cli.failures import CommandError


class Message:
    """A record of one partition."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None: ...

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"%d" % self._offset


class Member:
    """Has one batch, and remembers how far it was told that it was read."""

    stored: int | None = None

    def consume(self, _count: int, timeout: float) -> list[Message]:
        return [Message(offset) for offset in range(10)]

    def store_offsets(self, message: Message) -> None:
        self.stored = message.offset()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whoever runs the tests in the background has them ignore SIGINT, and what ignores it never ends by it."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_is_noted_what_was_printed_waits(number: signal.Signals) -> None:
    class Interrupted(Member):
        def store_offsets(self, message: Message) -> None:
            os.kill(os.getpid(), number)
            super().store_offsets(message)

    member: Any = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        consume._print_records(member, None, None, "value", commits=True)
    assert member.stored == 9


@pytest.mark.parametrize(("at", "stored"), [(0, None), (4, 3), (9, 8)])
def test_a_signal_amid_a_batch_leaves_what_was_printed_read(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], at: int, stored: int | None
) -> None:
    def line(message: Message, _output: str) -> bytes:
        if message.offset() == at:
            raise KeyboardInterrupt
        return message.value() + b"\n"

    monkeypatch.setattr(consume, "_line", line)
    member: Any = Member()
    with pytest.raises(KeyboardInterrupt):
        consume._print_records(member, None, None, "value", commits=True)
    assert member.stored == stored
    assert len(capfdbinary.readouterr().out.splitlines()) == at


def test_an_error_behind_records_leaves_what_was_printed_before_it_read(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    class Failure:
        def error(self) -> "Failure":
            return self

        def str(self) -> str:
            return "the topic is gone"

    class Failing(Member):
        def consume(self, _count: int, timeout: float) -> list[Any]:
            return [*(Message(offset) for offset in range(4)), Failure(), Message(4)]

    member: Any = Failing()
    with pytest.raises(CommandError, match="the topic is gone"):
        consume._print_records(member, None, None, "value", commits=True)
    assert member.stored == 3
    assert capfdbinary.readouterr().out.splitlines() == [b"0", b"1", b"2", b"3"]
