"""A listening socket."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.runtime.simulation.listener import SimulatedListener
from ottla.runtime.simulation.process import Process
from ottla.runtime.simulation.transport import Address, SimulatedTransport

if TYPE_CHECKING:
    from ottla.runtime.simulation.network import Network

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class SimulatedServer(asyncio.AbstractServer):
    """What `loop.create_server` answers. Connections wait in the backlog until the program's turn to accept them."""

    def __init__(self, network: "Network", process: Process, factory: ProtocolFactory, address: Address, backlog: int):
        self.process = process
        self.address = address
        self._network = network
        self._factory = factory
        self._backlog = backlog
        self._waiting: dict[SimulatedTransport, None] = {}
        self._accepted = 0
        self._serving = False
        self._ended: asyncio.Future[None] | None = None
        self._listener = SimulatedListener(self)

    @property
    def sockets(self) -> tuple[SimulatedListener, ...]:
        return (self._listener,) if self._network.is_bound(self) else ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.process.loop

    def is_serving(self) -> bool:
        return self._serving

    async def start_serving(self) -> None:
        self.serve()

    def serve(self) -> None:
        self._serving = True

    async def serve_forever(self) -> None:
        self.serve()
        self._ended = self.process.loop.create_future()
        try:
            await self._ended
        finally:
            self.close()

    def close(self) -> None:
        """Connections nobody accepted are reset; the accepted ones stay."""
        self._serving = False
        self._network.unbind(self)
        waiting, self._waiting = self._waiting, {}
        for transport in waiting:
            transport.close_socket()
        if self._ended is not None and not self._ended.done():
            self._ended.cancel()

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)  # as Python 3.11 and uvloop do, it does not wait for the connections

    def takes_more(self) -> bool:
        return self._serving and len(self._waiting) < self._backlog

    def enqueue(self, transport: SimulatedTransport) -> None:
        """A connection is made as far as the kernels are concerned."""
        self._waiting[transport] = None

    def accept(self, transport: SimulatedTransport) -> None:
        """The program's turn."""
        if self._listener.is_own:
            self._listener.arrived(transport)
        elif self.take(transport):
            transport.attach(self._factory())

    def take(self, transport: SimulatedTransport) -> bool:
        """Out of the backlog, if it still is in it."""
        if transport not in self._waiting:
            return False
        del self._waiting[transport]
        self._accepted += 1
        transport.server = self
        return True

    def listen(self, backlog: int) -> None:
        """The program accepts by itself."""
        self._backlog = backlog
        self.serve()

    def detach(self) -> None:
        self._accepted -= 1
