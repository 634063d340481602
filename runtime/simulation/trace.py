"""What happened, as a hash to compare runs by, and as the last events to read after a failure."""

import zlib
from collections import deque
from functools import lru_cache

_RECENT_EVENTS_MAX = 5000

Event = tuple[int, str, str, tuple[object, ...]]
"""The simulation's own time, a node's name, what happened, and more of it."""


class Trace:
    """A running hash over every event of a run. Two runs with equal ``digest`` and ``count`` took the same path.

    The hash is Python's of tuples of numbers: fast, 64 bits, and the same under every PYTHONHASHSEED. Nothing is made text of
    before somebody reads it.
    """

    def __init__(self) -> None:
        self.digest = 0
        self.count = 0
        self._recent: deque[Event] = deque(maxlen=_RECENT_EVENTS_MAX)

    def step(self, time_ns: int, node: int) -> None:
        """One callback ran. The hot one: no text."""
        self.count += 1
        self.digest = hash((self.digest, time_ns, node))

    def bytes_moved(self, time_ns: int, node: str, connection: int, data: bytes) -> None:
        """``data`` arrived at ``node``: hashed whole, remembered by its length."""
        self.count += 1
        self.digest = hash((self.digest, time_ns, connection, len(data), zlib.crc32(data)))
        self._recent.append((time_ns, node, "receive", ("connection", connection, "bytes", len(data))))

    def event(self, time_ns: int, node: str, kind: str, *detail: object) -> None:
        """Something worth reading. ``detail`` is numbers, or hashed by its text, so it holds nothing that varies between runs."""
        self.count += 1
        self._recent.append((time_ns, node, kind, detail))
        numbers = [each if type(each) is int else _number(each) for each in detail]
        self.digest = hash((self.digest, time_ns, _sum(node), _sum(kind), *numbers))

    def operated(self, time_ns: int, node: str, operation: str, path: str, detail: tuple[int, ...]) -> None:
        """As `event`, of a disk's operation: the most frequent of them, at half the price."""
        self.count += 1
        self._recent.append((time_ns, node, operation, (path, *detail)))
        self.digest = hash((self.digest, time_ns, _sum(node), _sum(operation), _sum(path), *detail))

    def latest(self) -> str:
        """The last event."""
        return _line(self._recent[-1])

    def tail(self, events: int = 200) -> str:
        """The last events, one a line, in the order they happened."""
        return "\n".join(map(_line, list(self._recent)[-events:]))


class NoTrace(Trace):
    """Of a run among thousands: whichever of them fails is run again."""

    def step(self, time_ns: int, node: int) -> None:
        pass

    def bytes_moved(self, time_ns: int, node: str, connection: int, data: bytes) -> None:
        pass

    def event(self, time_ns: int, node: str, kind: str, *detail: object) -> None:
        pass

    def operated(self, time_ns: int, node: str, operation: str, path: str, detail: tuple[int, ...]) -> None:
        pass


@lru_cache(1 << 14)
def _sum(text: str) -> int:
    return zlib.crc32(text.encode())


def _number(detail: object) -> int | float:
    return (
        _sum(detail) if isinstance(detail, str) else detail if isinstance(detail, (int, float)) else _sum(str(detail))
    )


def _line(event: Event) -> str:
    time_ns, node, kind, detail = event
    return f"{time_ns / 1e9:14.6f}  {node:<12} {kind:<10} {' '.join(map(str, detail))}"
