"""Protocols for both ends of a simulated connection, and a connection between them."""

import asyncio
from collections.abc import Callable

from ottla.runtime.host import Host
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.node import SimulatedNode


class BufferedEcho(asyncio.BufferedProtocol):
    """Sends back what it reads, through a small buffer of its own; obeys back-pressure."""

    def __init__(self) -> None:
        self.buffer = bytearray(1000)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()


class Recorder(asyncio.Protocol):
    """Remembers what happens to its connection."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> None:
        self.events.append("eof")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost {type(exc).__name__}" if exc else "lost")


def serve(loop: SimulationLoop, factory: Callable[[], asyncio.BaseProtocol], name: str = "server") -> SimulatedNode:
    """A node that serves ``factory`` on port 9092 for as long as it lives."""

    async def main(host: Host) -> None:
        server = await asyncio.get_running_loop().create_server(factory, name, 9092)
        await server.serve_forever()

    node = loop.create_node(name)
    node.start(main)
    return node


async def connected(loop: SimulationLoop) -> tuple[Recorder, Recorder, SimulatedNode]:
    """A client in the harness, its server end, and the server's node."""
    ends: list[Recorder] = []

    def factory() -> Recorder:
        ends.append(Recorder())
        return ends[-1]

    node = serve(loop, factory)
    await asyncio.sleep(0.001)
    _, client = await loop.create_connection(Recorder, "server", 9092)
    await asyncio.sleep(0.01)
    return client, ends[0], node
