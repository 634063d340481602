"""What stands in a connection's place, and in its socket's, when both are gone: nothing is done any more.

A connection and its socket know each other. If they did so for ever each client that left would be garbage for Python's collector, which
does not look at what is old (`runtime/garbage.py`).
"""

import asyncio


class Gone(asyncio.Transport):
    """Late answers may still ask for it."""

    def is_closing(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        """It is."""

    def abort(self) -> None:
        """The same."""

    def resume_soon(self) -> None:
        """Nobody's turn."""


GONE = Gone()
