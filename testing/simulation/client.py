"""A Kafka client small enough for the simulation: one request in flight on a connection, in asyncio's own terms."""

import asyncio
from typing import TypeVar

import msgspec

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.codec import decoder, encoder
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic

Response = TypeVar("Response", bound=msgspec.Struct)

REQUEST_TIMEOUT_S = 2.0
_FRAME_BYTES_MAX = 64 << 20


class Unreachable(Exception):
    """The broker could not be reached, or did not answer in time. Whether it did the work is not known."""


class BrokerConnection:
    """One connection; it is gone after the first failure."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def open(cls, host: str, port: int) -> "BrokerConnection":
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return cls(*await asyncio.open_connection(host, port))
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{host}:{port}: {error}") from error

    async def call(self, request: msgspec.Struct, response: type[Response], version: int | None = None) -> Response:
        """Raises Unreachable, and then the connection is closed."""
        api = BY_NAME[type(request).__name__.removesuffix("Request")]
        version = api.max_stable if version is None else version
        self._correlation_id += 1
        header = encode_request_header(api.key, version, self._correlation_id, "simulation")
        body = b"".join([header, *encoder(type(request), version)(request)])
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                if self._writer.is_closing():
                    raise ConnectionResetError("reset while no answer was owed")
                self._writer.write(len(body).to_bytes(4, "big") + body)
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                assert size <= _FRAME_BYTES_MAX
                frame = memoryview(await self._reader.readexactly(size))
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.close()
            raise Unreachable(str(error)) from error
        correlation_id, position = read_response_header(frame, 0, api.key, version)
        assert correlation_id == self._correlation_id, "answers come in the order of their requests"
        return decoder(response, version)(frame, position)[0]

    def close(self) -> None:
        self._writer.close()


class Client:
    """Connections to the brokers of a cluster, by (host, port)."""

    def __init__(self, brokers: list[tuple[str, int]]) -> None:
        self._bootstrap = brokers
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._turn = 0

    async def call(
        self, where: tuple[str, int], request: msgspec.Struct, response: type[Response], version: int | None = None
    ) -> Response:
        """Raises Unreachable."""
        connection = self._connections.get(where)
        if connection is None:
            connection = self._connections[where] = await BrokerConnection.open(*where)
        try:
            return await connection.call(request, response, version)
        except (Unreachable, asyncio.CancelledError):
            connection.close()  # an answer may still be on its way
            self._connections.pop(where, None)
            raise

    async def ask_any(self, request: msgspec.Struct, response: type[Response], version: int | None = None) -> Response:
        """Asks the bootstrap brokers in turn, one a call. Raises Unreachable."""
        self._turn += 1
        return await self.call(self._bootstrap[self._turn % len(self._bootstrap)], request, response, version)

    async def topic(self, name: str) -> tuple[MetadataResponseTopic, dict[int, tuple[str, int]]]:
        """The topic as some broker knows it, and where the brokers are. Raises Unreachable."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        answer = await self.ask_any(request, MetadataResponse)
        return answer.topics[0], {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
