"""A listening socket of our own: libuv accepts one connection a turn and handle, and of a crowd that comes while others are served the last
would wait for seconds (after a failover all clients come together)."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable

from ottla.runtime.seldom import Seldom

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 64
"""Some 40 us each, so a few milliseconds; then those who are here already have their turn."""
BACK_OFF_SECONDS = 0.25
_OF_THE_VISITOR = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.ENOPROTOOPT, errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH,
     errno.EOPNOTSUPP, errno.ENETUNREACH, errno.EPERM, errno.EINTR}
)  # fmt: skip
"""What became of one that waited; accept(2) says it once, and the next may be sound."""

Welcome = Callable[[socket.socket, tuple[str, int]], None]


async def bind(host: str, port: int, backlog: int) -> list["Acceptor"]:
    """One for each address family that ``host`` has (empty: all). Clients are refused until `start`.

    Raises OSError when the address is taken or not ours.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, host or None, port, start_serving=False)
    return [Acceptor(server, bound, backlog) for bound in server.sockets]


class Acceptor:
    """Accepts until nobody waits, or for a few milliseconds a turn. Without a task for those who wait, and without a socket for those
    who are not let in."""

    def __init__(self, server: asyncio.Server, bound: socket.socket, backlog: int) -> None:
        """``server`` looked the address up, and bound it; it never serves."""
        self._server = server
        self._socket = _own(bound)
        self._backlog = backlog
        self._is_open = True
        self._timer: asyncio.TimerHandle | None = None
        self._shortages = Seldom(logger)

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def start(self, welcome: Welcome) -> None:
        """``welcome`` is given each client's socket, and owns it."""
        self._welcome = welcome
        self._socket.listen(self._backlog)
        self._watch()

    def close(self) -> None:
        """Who waits to be accepted is reset by the kernel. The loop forgets the descriptor before it may be somebody else's."""
        if not self._is_open:
            return
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._server.close()

    def _watch(self) -> None:
        self._timer = None
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                client, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OF_THE_VISITOR:
                    continue
                self._back_off(error)
                return
            self._welcome(client, address)
            if not self._is_open:
                return

    def _back_off(self, error: OSError) -> None:
        """No descriptor or no memory for one more: the socket stays readable, so nobody looks at it for a while."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        self._timer = loop.call_later(BACK_OFF_SECONDS, self._watch)
        self._shortages.warn("Cannot accept a connection: %s", error.strerror or error)


def _own(bound: socket.socket) -> socket.socket:
    """The same socket, for us alone: that of a loop's server does not accept."""
    if bound.fileno() < 0:
        return bound  # a simulated one does
    own = socket.socket(fileno=os.dup(bound.fileno()))
    own.setblocking(False)
    return own
