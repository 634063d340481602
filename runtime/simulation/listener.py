"""A listening socket from which the program accepts by itself, told by `loop.add_reader` when somebody waits."""

import errno
import os
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

from ottla.runtime.simulation.transport import Address, SimulatedSocket, SimulatedTransport

if TYPE_CHECKING:
    from ottla.runtime.simulation.server import SimulatedServer


class AcceptedSocket(SimulatedSocket):
    """What `accept` answers; `loop.connect_accepted_socket` gives it a transport."""

    def __init__(self, transport: SimulatedTransport) -> None:
        super().__init__(transport.get_extra_info("sockname"), transport.get_extra_info("peername"))
        self.transport = transport
        self.is_attached = False

    def setblocking(self, flag: bool) -> None:
        pass

    def close(self) -> None:
        if not self.is_attached and not self.transport.closed:
            self.transport.close_socket()


class SimulatedListener(SimulatedSocket):
    """Readable while a connection is complete and not accepted, as level-triggered polling has it."""

    def __init__(self, server: "SimulatedServer") -> None:
        super().__init__(server.address)
        self.is_own = False
        self._server = server
        self._complete: deque[SimulatedTransport] = deque()
        self._reader: tuple[Callable[[], object], Context] | None = None
        self._is_told = False
        self._failures: deque[int] = deque()

    def listen(self, backlog: int) -> None:
        self.is_own = True
        self._server.listen(backlog)

    def close(self) -> None:
        self._server.close()

    def fail(self, *errors: int) -> None:
        """For tests: what the next calls of `accept` raise."""
        self._failures.extend(errors)

    def accept(self) -> tuple[AcceptedSocket, Address]:
        if self._failures:
            error = self._failures.popleft()
            raise OSError(error, os.strerror(error))
        while self._complete:
            transport = self._complete.popleft()
            if self._server.take(transport):
                return AcceptedSocket(transport), transport.get_extra_info("peername")
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def arrived(self, transport: SimulatedTransport) -> None:
        self._complete.append(transport)
        self._tell()

    def watch(self, callback: Callable[[], object]) -> None:
        self._reader = (callback, copy_context())
        self._tell()

    def unwatch(self) -> bool:
        was, self._reader = self._reader, None
        return was is not None

    def _tell(self) -> None:
        if self._reader is not None and self._complete and not self._is_told:
            self._is_told = True
            self._server.get_loop().call_soon(self._read, context=self._reader[1])

    def _read(self) -> None:
        self._is_told = False
        if self._reader is not None and self._complete:
            self._reader[0]()
            self._tell()
