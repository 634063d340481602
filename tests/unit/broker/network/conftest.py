"""A connection on a transport that only remembers."""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.broker.network.beside import Beside
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.receive import ReceivePool
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route, RouteTable
from ottla.broker.network.turn import TURN_S, Turn
from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.headers import encode_request_header
from ottla.runtime.loop_watch import LoopWatch

ECHO = BY_NAME["Metadata"].key
PARK = BY_NAME["Fetch"].key
FAIL = BY_NAME["CreateTopics"].key
LARGE = BY_NAME["ListOffsets"].key
PRODUCE = BY_NAME["Produce"].key
ANY_SIZE = ConnectionLimits(plain_bytes_max=ConnectionLimits().request_bytes_max)
"""Whatever API a test says: to it they are only frames."""


class FakeTransport(asyncio.Transport):
    """Keeps what was written; says that its buffer is full when told to."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 5000)})
        self.written = bytearray()
        self.writes: list[list[bytes]] = []
        self.reading = True
        self.pauses = 0
        self.closing = False
        self.aborted = False
        self.high = 0
        self.unsent = 0
        self.on_written: Callable[[int], None] | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        assert not self.closing, "written to a closed transport"
        self.writes.append([bytes(each) for each in list_of_data])
        self.written += b"".join(self.writes[-1])
        if self.on_written is not None:
            self.on_written(len(self.written))

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        assert not self.closing
        self.reading = False
        self.pauses += 1

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        assert not self.closing
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


def frame(
    key: int, body: bytes = b"", *, correlation_id: int = 0, client_id: str | None = "test", version: int = 4
) -> bytes:
    payload = encode_request_header(key, version, correlation_id, client_id) + body
    return struct.pack(">i", len(payload)) + payload


def responses(data: bytes | bytearray) -> list[tuple[int, bytes]]:
    """Correlation id and body of each response in a stream."""
    found, position = [], 0
    while position < len(data):
        size, correlation_id = struct.unpack_from(">ii", data, position)
        found.append((correlation_id, bytes(data[position + 8 : position + 4 + size])))
        position += 4 + size
    return found


class Turns:
    """The end of the loop's turn, when a test says so."""

    def __init__(self, loop_watch: LoopWatch | None = None) -> None:
        self.planned: list[Callable[[], None]] = []
        self.now_s = 1.0
        self.turn = Turn(self.planned.append, loop_watch or LoopWatch(lambda: self.now_s))

    def take_long(self) -> None:
        """The turn under way took more than it should."""
        self.turn.loop_watch.began_s = self.now_s
        self.now_s += 2 * TURN_S

    def begin(self) -> None:
        """Another one."""
        self.turn.loop_watch.began_s = self.now_s

    def end(self) -> bool:
        """False: nothing was left for it."""
        planned, self.planned[:] = self.planned[:], []
        for each in planned:
            each()
        return bool(planned)

    def end_all(self) -> None:
        """As many turns as it takes until nobody has anything left."""
        while self.end():
            pass


class Held:
    """What is done beside the loop, when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Callable[[], Any]], None]]] = []

    def run(self, api_key: int, work: Callable[[], Any], then: Callable[[Callable[[], Any]], None]) -> None:
        self.waiting.append((work, then))

    def finish_one(self) -> None:
        """The first that was begun."""
        work, then = self.waiting.pop(0)
        then(work)


class Peer:
    """A connection, its transport, and the requests that its handlers parked."""

    def __init__(
        self,
        limits: ConnectionLimits | None = None,
        pool: ReceivePool | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.parked: list[RequestContext] = []
        self.seen: list[bytes] = []
        self.large_bytes = 1_000_000
        self.takes_s = 0.0  # an echo, by the clock of the turns
        self.unread = b""
        self.routes = RouteTable(
            [
                Route(ECHO, 0, 13, self._echo),
                Route(PARK, 4, 18, self._park),
                Route(PRODUCE, 3, 13, self._park),
                Route(FAIL, 2, 7, self._fail),
                Route(LARGE, 1, 11, self._large),
            ]
        )
        self.pool = pool or ReceivePool()
        self.lost: list[Connection] = []
        self.turns = turns or Turns()
        self.beside = Held()
        self.connection = Connection(
            self.routes,
            self.pool,
            limits or ANY_SIZE,
            on_lost=self.lost.append,
            turn=self.turns.turn,
            beside=cast(Beside, self.beside),
        )
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)
        self.full_bytes = 1 << 62
        self.transport.on_written = self._written

    def _written(self, size: int) -> None:
        """As transports do, inside of a write."""
        if size > self.full_bytes and not self.transport.unsent:
            self.transport.unsent = size
            self.connection.pause_writing()

    def take_answers(self) -> None:
        """As a client that reads at last."""
        self.transport.unsent = 0
        self.transport.written.clear()
        self.connection.resume_writing()

    def _echo(self, request: RequestContext, frame: memoryview, position: int) -> None:
        self.turns.now_s += self.takes_s
        self.seen.append(bytes(frame[position:]))
        request.respond([bytes(frame[position:])])

    def _park(self, request: RequestContext, frame: memoryview, position: int) -> None:
        self.parked.append(request)

    def _fail(self, request: RequestContext, frame: memoryview, position: int) -> None:
        raise ValueError("a mistake of ours")

    def _large(self, request: RequestContext, frame: memoryview, position: int) -> None:
        request.respond([bytes(self.large_bytes)])

    def receive(self, data: bytes, chunk: int = 1 << 30) -> None:
        """Delivers bytes in as many turns of the loop as it takes, or as are possible."""
        self.unread = data
        self.read(chunk)
        while self.turns.end():
            self.read(chunk)

    def read(self, chunk: int = 1 << 30) -> None:
        """What a transport reads of ``unread`` in one turn: nothing while it is paused."""
        while self.unread and self.transport.reading and not self.transport.closing:
            space = self.connection.get_buffer(-1)
            count = min(len(space), len(self.unread), chunk)
            assert count > 0
            space[:count] = self.unread[:count]
            self.unread = self.unread[count:]
            self.connection.buffer_updated(count)

    @property
    def answers(self) -> list[tuple[int, bytes]]:
        """Those that left by the end of the turn."""
        self.turns.end_all()
        return responses(self.transport.written)


MakePeer = Callable[..., Peer]


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def make_peer() -> MakePeer:
    return Peer


def one_warning(caplog: pytest.LogCaptureFixture) -> str:
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1, lines
    return lines[0]
