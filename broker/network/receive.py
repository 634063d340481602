"""Where received bytes lie until their frames are whole.

Frames are handled inside the read callback, so connections take turns in one shared buffer and an idle one owns
nothing. Only the piece of a frame whose rest has not come yet moves to a buffer of its connection.
"""

KILOBYTE = 1 << 10
CHUNK_BYTES = 256 * KILOBYTE
"""The most one read takes from a connection that owns no larger buffer."""

# The odd 64 KB: a frame of 1 MB of records has a header, and should not need the next class.
CLASSES = (16 * KILOBYTE, 64 * KILOBYTE, CHUNK_BYTES, 1088 * KILOBYTE, 4160 * KILOBYTE)
KEPT_BYTES_MAX = 16 << 20
GROWTH = 4


class ReceivePool:
    """The shared buffer of one event loop, and spare buffers of a few sizes (their first touch costs page faults)."""

    def __init__(self) -> None:
        self.shared = memoryview(bytearray(CHUNK_BYTES))
        self._spare: dict[int, list[bytearray]] = {size: [] for size in CLASSES}
        self._spare_bytes = 0

    def take(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes; what it holds is arbitrary."""
        rounded = next((each for each in CLASSES if each >= size), size)
        spare = self._spare.get(rounded)
        if spare:
            self._spare_bytes -= rounded
            return spare.pop()
        return bytearray(rounded)

    def give(self, buffer: bytearray) -> None:
        """Takes a buffer back; views of it must not be used any more."""
        size = len(buffer)
        if size in self._spare and self._spare_bytes + size <= KEPT_BYTES_MAX:
            self._spare[size].append(buffer)
            self._spare_bytes += size


class ReceiveBuffer:
    """The unread bytes of one connection: ``view[start:end]``. The connection moves both."""

    __slots__ = ("_limit", "_own", "_pool", "end", "start", "view")

    def __init__(self, pool: ReceivePool) -> None:
        self._pool = pool
        self._own: bytearray | None = None
        self.view = pool.shared
        self.start = self.end = 0
        self._limit = len(pool.shared)

    @property
    def owned_bytes(self) -> int:
        """Memory that this connection keeps from others."""
        return 0 if self._own is None else len(self._own)

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self.view if self._own is None else self.view[self.end : self._limit]

    def settle(self, needed: int) -> None:
        """Called when no more frames can be taken: keeps ``view[start:end]`` for the next read.

        ``needed`` is the size of the frame that begins at ``start``, as far as it is known.
        """
        remaining = self.end - self.start
        if remaining == 0:
            self._rest()
            return
        filled = self.end == self._limit
        capacity = self._capacity(needed, remaining, filled)
        if self._own is None or capacity > len(self._own):
            self._move(self._pool.take(capacity), remaining)
        elif self.start:
            self.view[:remaining] = self.view[self.start : self.end]
            self.start, self.end = 0, remaining
        # A large frame is read to its exact end, so that the next one begins at the buffer's start without a copy.
        self._limit = needed if needed >= CHUNK_BYTES and needed <= len(self.view) else len(self.view)

    def trim(self) -> None:
        """Gives an own buffer back when nothing waits in it (called when the connection was quiet for a while)."""
        if self._own is not None and self.start == self.end:
            self.release()

    def release(self) -> None:
        """Forgets everything."""
        if self._own is not None:
            own, self._own = self._own, None
            self._forget()
            self._pool.give(own)

    def _capacity(self, needed: int, remaining: int, filled: bool) -> int:
        # Memory follows the bytes that came, not the size that a stranger wrote into a frame: grow by steps.
        step = CHUNK_BYTES if filled else CLASSES[0]
        return max(min(max(needed, step), max(step, GROWTH * remaining)), remaining + 1)

    def _move(self, target: bytearray, remaining: int) -> None:
        view = memoryview(target)
        view[:remaining] = self.view[self.start : self.end]
        if self._own is not None:
            self._pool.give(self._own)
        self._own, self.view = target, view
        self.start, self.end = 0, remaining

    def _rest(self) -> None:
        # After a frame larger than the shared buffer the next is likely as large: reading into the own buffer
        # spares the copy out of the shared one.
        if self._own is None or len(self._own) > CHUNK_BYTES:
            self.start = self.end = 0
            self._limit = len(self.view)
        else:
            self.release()

    def _forget(self) -> None:
        self.view = self._pool.shared
        self.start = self.end = 0
        self._limit = len(self.view)
