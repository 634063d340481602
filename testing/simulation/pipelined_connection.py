"""A connection with several requests in flight, which are answered in their order."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.testing.simulation.client import REQUEST_TIMEOUT_S, Unreachable
from ottla.testing.simulation.workload import BrokenPromise

Response = TypeVar("Response", bound=msgspec.Struct)


class _Asked(NamedTuple):
    key: int
    version: int
    decode: Callable[[memoryview, int], tuple[msgspec.Struct, int]]
    answer: "asyncio.Future[Any]"


class PipelinedConnection:
    """Once one request stays unanswered because the connection broke, none is any more."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._number = 0
        self._waiting: deque[tuple[int, _Asked]] = deque()
        self._error: Exception | None = None
        self._reading = asyncio.ensure_future(self._read(reader))

    @classmethod
    async def open(cls, host: str, port: int) -> "PipelinedConnection":
        """Raises Unreachable."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return cls(*await asyncio.open_connection(host, port))
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{host}:{port}: {error}") from error

    def send(self, request: msgspec.Struct, response: type[Response], version: int) -> "asyncio.Future[Response]":
        """The future raises Unreachable, or BrokenPromise where answers come in another order."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_seen)
        if self._error is None and self._writer.is_closing():
            self._fail(Unreachable("reset while no answer was owed"))
        if self._error is not None:
            answer.set_exception(self._error)
            return answer
        self._number += 1
        key = BY_NAME[type(request).__name__.removesuffix("Request")].key
        header = encode_request_header(key, version, self._number, "simulation")
        body = b"".join([header, *encoder(type(request), version)(request)])
        self._writer.write(len(body).to_bytes(4, "big") + body)
        self._waiting.append((self._number, _Asked(key, version, decoder(response, version), answer)))
        return answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = memoryview(await reader.readexactly(size))
                due, (key, version, decode, answer) = self._waiting[0]
                number, position = read_response_header(frame, 0, key, version)
                if number != due:
                    raise BrokenPromise(f"request {due} of a connection was answered with the answer of {number}")
                self._waiting.popleft()
                if not answer.done():  # who asked has lost patience
                    answer.set_result(decode(frame, position)[0])
        except (OSError, asyncio.IncompleteReadError) as error:
            self._fail(Unreachable(str(error)))
        except BrokenPromise as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._error = error
        for _, asked in self._waiting:
            if not asked.answer.done():
                asked.answer.set_exception(error)
        self._waiting.clear()

    def close(self) -> None:
        self._reading.cancel()
        self._fail(Unreachable("closed"))
        self._writer.close()


def _seen(answer: "asyncio.Future[Any]") -> None:
    """Nobody may be waiting for it any more."""
    if not answer.cancelled():
        answer.exception()
