"""Whether a connection's socket is read: only while nothing stands against it.

The reasons are bits of one number, so that taking one back never undoes another: a client whose turn comes again is not read
while it does not take its answers, nor one that takes them while memory is short.
"""

import asyncio
from typing import cast

TURN = 1
"""It had its turn. What it sent is looked at when the others had theirs."""
BOUND = 2
"""What waits on this connection is at a bound, or it is closed: no request is taken either."""
STARVED = 4
"""The node's memory is short: nothing more of a request may come."""
MUTED = 8
"""It is to be quiet for a while (a quota): no request is taken either."""
BESIDE = 16
"""A large request of it is being read on a thread: none behind it is taken before."""
HELD = BOUND | MUTED | BESIDE
"""While one of them stands no request is taken, though it came."""


class Reading:
    """``stopped`` holds the reasons that stand. Costs nothing where none comes or goes."""

    __slots__ = ("_is_on", "_transport", "stopped")

    def __init__(self) -> None:
        self.stopped = 0
        self._is_on = True
        self._transport: asyncio.ReadTransport | None = None

    def begin(self, transport: asyncio.BaseTransport) -> None:
        """The transport reads by itself from the start."""
        self._transport = cast(asyncio.ReadTransport, transport)

    def end(self) -> None:
        """There is nothing to read any more."""
        self._transport = None

    def stop(self, reason: int) -> None:
        """Nothing is read from now on: from within the read callback this also ends the loop's reading of this socket."""
        self.stopped |= reason
        if self._is_on and self._transport is not None and not self._transport.is_closing():
            self._is_on = False
            self._transport.pause_reading()

    def lift(self, reason: int) -> None:
        """The reason is gone. Read again only by `go_on`: what was read before comes first."""
        self.stopped &= ~reason

    def go_on(self) -> None:
        """Reads, unless a reason stands."""
        if not self.stopped and not self._is_on and self._transport is not None and not self._transport.is_closing():
            self._is_on = True
            self._transport.resume_reading()
