"""Where received bytes lie until their frames are whole.

Frames are handled inside the read callback, so connections take turns in one shared buffer and an idle one owns
nothing. Only the piece of a frame whose rest has not come yet moves to a buffer of its connection, which grows with what came.
"""

from mmap import mmap

from ottla.broker.network.budget import MemoryBudget

KILOBYTE = 1 << 10
CHUNK_BYTES = 256 * KILOBYTE
"""The most one read takes, and the most that a connection takes in one turn of the loop."""

# The odd 64 KB: a frame of 1 MB of records has a header, and should not need the next class.
CLASSES = (16 * KILOBYTE, 64 * KILOBYTE, CHUNK_BYTES, 1088 * KILOBYTE, 4160 * KILOBYTE)
LITTLE_BYTES = 2 * KILOBYTE
KEPT_BYTES_MAX = 16 << 20
GROWTH = 2

OwnBuffer = bytearray | mmap
"""Beyond the largest class anonymous memory, of which only the pages count that were written: a frame of 100 MB of which 5 came
takes 5, and what it had goes back at once."""


class ReceivePool:
    """The shared buffer of one event loop, and spare buffers of a few sizes (their first touch costs page faults).

    What it lends counts against the budget.
    """

    def __init__(self, budget: MemoryBudget | None = None) -> None:
        self.budget = budget or MemoryBudget()
        self.shared = memoryview(mmap(-1, CHUNK_BYTES))
        self.small = self.shared[: CLASSES[0]]
        self._spare: dict[int, list[bytearray]] = {size: [] for size in CLASSES}
        self._spare_bytes = 0

    def take(self, size: int) -> OwnBuffer:
        """A buffer of at least ``size`` bytes; what it holds is arbitrary."""
        rounded = next((each for each in CLASSES if each >= size), size)
        self.budget.add(rounded)
        if rounded > CLASSES[-1]:
            return mmap(-1, rounded)
        spare = self._spare.get(rounded)
        if spare:
            self._spare_bytes -= rounded
            return spare.pop()
        return bytearray(rounded)

    def take_little(self, size: int) -> OwnBuffer:
        """A buffer for what waits a moment: of the very size if that is small, for a thousand clients may wait at once."""
        if size > LITTLE_BYTES:
            return self.take(size)
        self.budget.add(size)
        return bytearray(size)

    def may_take(self, size: int) -> bool:
        """While memory is short: what one read takes, or, when that is short as well, next to nothing."""
        return size <= (CLASSES[0] if self.budget.is_crowded else CHUNK_BYTES)

    def give(self, buffer: OwnBuffer) -> None:
        """Takes a buffer back; views of it must not be used any more."""
        size = len(buffer)
        self.budget.add(-size)
        if isinstance(buffer, bytearray) and size in self._spare and self._spare_bytes + size <= KEPT_BYTES_MAX:
            self._spare[size].append(buffer)
            self._spare_bytes += size


class ReceiveBuffer:
    """The unread bytes of one connection: ``view[start:end]``. The connection moves both."""

    __slots__ = ("_limit", "_own", "_pool", "end", "given", "start", "view")

    def __init__(self, pool: ReceivePool) -> None:
        self._pool = pool
        self._own: OwnBuffer | None = None
        self.view = pool.shared
        self.start = self.end = 0
        self.given = self._limit = len(pool.shared)

    @property
    def owned_bytes(self) -> int:
        """Memory that this connection keeps from others."""
        return 0 if self._own is None else len(self._own)

    @property
    def is_at_limit(self) -> bool:
        """A large frame is whole, or has no room for its rest yet."""
        return self.end == self._limit

    def space(self) -> memoryview:
        """Where the next bytes go, up to ``given``; never empty. While memory is short nobody begins with more than a little."""
        if self._own is not None:
            end = self.end
            if end >= self._limit:  # what was kept filled its buffer
                self._move(self._pool.take(end - self.start + CLASSES[0]), end - self.start)
                self._limit, end = len(self.view), self.end
            self.given = given = min(self._limit, end + CHUNK_BYTES)
            return self.view[end:given]
        space = self._pool.small if self._pool.budget.is_crowded else self.view
        self.given = len(space)
        return space

    def keep(self) -> None:
        """Keeps ``view[start:end]`` until it is the connection's turn again."""
        remaining = self.end - self.start
        if remaining == 0:
            self._rest()
        elif self._own is None:
            self._move(self._pool.take_little(remaining), remaining)
            self._limit = len(self.view)

    def settle(self, needed: int, *, in_any_case: bool = False) -> bool:
        """Called when no more frames can be taken: keeps ``view[start:end]`` and makes room for the next read.

        ``needed`` is the size of the frame that begins at ``start``, as far as it is known. False: memory is short, nothing may
        be read before there is room. ``in_any_case``: room for the whole frame.
        """
        remaining = self.end - self.start
        if remaining == 0:
            self._rest()
            return True
        if self._own is None or remaining == len(self._own) or (in_any_case and needed > len(self._own)):
            capacity = max(needed, remaining + 1) if in_any_case else self._capacity(needed, remaining)
            if self._pool.budget.is_full and not in_any_case and not self._pool.may_take(capacity):
                self.keep()
                return False
            self._move(self._pool.take(capacity), remaining)
        elif self.start:
            self.view[:remaining] = self.view[self.start : self.end]
            self.start, self.end = 0, remaining
        # A large frame is read to its exact end, so that the next one begins at the buffer's start without a copy.
        self._limit = needed if needed >= CHUNK_BYTES and needed <= len(self.view) else len(self.view)
        return True

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

    def _capacity(self, needed: int, remaining: int) -> int:
        # Memory follows the bytes that came, not the size that a stranger wrote into a frame: grow by steps.
        step = CHUNK_BYTES if self.end == self._limit else CLASSES[0]
        return max(min(max(needed, step), max(step, GROWTH * remaining)), remaining + 1)

    def _move(self, target: OwnBuffer, remaining: int) -> None:
        view = memoryview(target)
        view[:remaining] = self.view[self.start : self.end]
        if self._own is not None:
            self._pool.give(self._own)
        self._own, self.view = target, view
        self.start, self.end = 0, remaining

    def _rest(self) -> None:
        # After a frame larger than the shared buffer the next is likely as large: reading into the own buffer
        # spares the copy out of the shared one.
        if self._own is None or (len(self._own) > CHUNK_BYTES and not self._pool.budget.is_full):
            self.start = self.end = 0
            self._limit = len(self.view)
        else:
            self.release()

    def _forget(self) -> None:
        self.view = self._pool.shared
        self.start = self.end = 0
        self._limit = len(self.view)
