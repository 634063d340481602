"""A link to a leader takes its share of a turn of the loop and no more."""

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.broker.links.connection import TURN_BYTES, LinkConnection
from ottla.broker.wire.apis import FETCH
from ottla.runtime.timers import LoopTimers
from tests.unit.broker.network.conftest import FakeTransport

VERSION = 4  # whose header is the correlation id alone


class End:
    """A link on a transport that only remembers, and what became of it."""

    def __init__(self, stall_ms: int = 5_000) -> None:
        self.loop = asyncio.get_running_loop()
        self.lost: list[str] = []
        self.transport = FakeTransport()
        self.link = LinkConnection(
            "test", LoopTimers(self.loop), stall_ms, lambda: None, lambda reason, _: self.lost.append(reason)
        )
        self.link.connection_made(self.transport)
        self.unread = b""
        self.sent = 0

    def ask(self, on_answer: Callable[[memoryview, int], Iterator[int] | None]) -> None:
        self.link.request(FETCH, VERSION, b"", on_answer)

    def answer(self, body: bytes) -> None:
        self.sent += 1
        self.unread += struct.pack(">ii", len(body) + 4, self.sent) + body

    def read(self) -> int:
        """What uvloop reads of one socket in a turn."""
        before = len(self.unread)
        while self.unread and self.transport.reading and not self.transport.closing:
            space = self.link.get_buffer(-1)
            count = min(len(space), len(self.unread))
            space[:count] = self.unread[:count]
            self.unread = self.unread[count:]
            self.link.buffer_updated(count)
        return before - len(self.unread)


def run(scenario: Callable[[End], Any], stall_ms: int = 5_000) -> None:
    async def main() -> None:
        end = End(stall_ms)
        try:
            await scenario(end)
        finally:
            end.link.close()

    asyncio.run(main())


def test_a_link_is_read_once_a_turn() -> None:
    async def scenario(end: End) -> None:
        seen: list[int] = []
        end.ask(lambda frame, position: seen.append(len(frame) - position))
        end.answer(bytes(3 << 20))
        while not seen:
            assert 0 < end.read() <= TURN_BYTES
            await asyncio.sleep(0)
        assert seen == [3 << 20]
        assert end.transport.reading

    run(scenario)


def test_an_answer_is_taken_in_over_turns_and_nothing_is_read_meanwhile() -> None:
    async def scenario(end: End) -> None:
        taken: list[bytes] = []

        def take(frame: memoryview, position: int) -> Iterator[int]:
            for index in range(4):
                taken.append(bytes(frame[position + index : position + index + 1]))
                yield TURN_BYTES

        end.ask(take)
        end.ask(lambda frame, position: taken.append(bytes(frame[position:])))
        end.answer(b"abcd")
        end.answer(b"behind")
        end.read()
        for count in (1, 2, 3, 4):
            assert len(taken) == count
            assert not end.transport.reading
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert taken == [b"a", b"b", b"c", b"d", b"behind"]
        assert end.transport.reading

    run(scenario)


def test_a_link_that_reads_nothing_while_it_takes_an_answer_in_misses_nothing() -> None:
    async def scenario(end: End) -> None:
        taken: list[bytes] = []

        def take(frame: memoryview, position: int) -> Iterator[int]:
            for _ in range(40):
                time.sleep(0.01)  # a slow disk
                yield TURN_BYTES

        end.ask(take)
        end.ask(lambda frame, position: taken.append(bytes(frame[position:])))
        end.answer(b"")
        end.read()
        for _ in range(50):
            await asyncio.sleep(0)
        end.answer(b"behind")
        end.read()
        assert (end.lost, taken) == ([], [b"behind"])
        end.ask(lambda frame, position: None)
        while not end.lost:  # noqa: ASYNC110 - a timer of the connection's is waited for
            await asyncio.sleep(0.01)
        assert end.lost == ["no answer for 50 ms"]

    run(scenario, stall_ms=50)


def test_small_pieces_are_taken_in_at_once() -> None:
    async def scenario(end: End) -> None:
        taken: list[int] = []

        def take(frame: memoryview, position: int) -> Iterator[int]:
            for index in range(100):
                taken.append(index)
                yield 100

        end.ask(take)
        end.answer(b"")
        end.read()
        assert len(taken) == 100
        assert end.transport.pauses == 0

    run(scenario)


def test_a_link_that_closes_while_an_answer_is_taken_in_takes_in_no_more() -> None:
    async def scenario(end: End) -> None:
        taken: list[int] = []

        def take(frame: memoryview, position: int) -> Iterator[int]:
            for index in range(10):
                taken.append(index)
                yield TURN_BYTES

        end.ask(take)
        end.answer(b"")
        end.read()
        end.link.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert taken == [0]
        assert end.lost == []

    run(scenario)


@pytest.mark.parametrize("failing", [0, 1])
def test_an_answer_that_cannot_be_taken_in_breaks_the_link(failing: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(end: End) -> None:
        def take(frame: memoryview, position: int) -> Iterator[int]:
            for index in range(2):
                if index == failing:
                    raise ValueError("a mistake of ours")
                yield TURN_BYTES

        end.ask(take)
        end.answer(b"")
        end.read()
        await asyncio.sleep(0)
        assert len(end.lost) == 1
        assert end.transport.aborted

    run(scenario)
    assert "a mistake of ours" in caplog.text
