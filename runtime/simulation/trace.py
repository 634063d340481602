"""What happened, as a hash to compare runs by, and as the last events to read after a failure."""

import zlib
from collections import deque
from typing import NamedTuple

_RECENT_EVENTS_MAX = 5000


class TraceEvent(NamedTuple):
    """``time_ns`` is the simulation's own time, ``node`` a name."""

    time_ns: int
    node: str
    kind: str
    detail: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.time_ns / 1e9:14.6f}  {self.node:<12} {self.kind:<10} {' '.join(map(str, self.detail))}"


class Trace:
    """A running hash over every event of a run. Two runs with equal ``digest`` and ``count`` took the same path.

    The hash is Python's of tuples of integers: fast, 64 bits, and the same under every PYTHONHASHSEED.
    """

    def __init__(self) -> None:
        self.digest = 0
        self.count = 0
        self.recent: deque[TraceEvent] = deque(maxlen=_RECENT_EVENTS_MAX)

    def step(self, time_ns: int, node: int) -> None:
        """One callback ran. The hot one: no text."""
        self.count += 1
        self.digest = hash((self.digest, time_ns, node))

    def bytes_moved(self, time_ns: int, node: str, connection: int, data: bytes) -> None:
        """``data`` arrived at ``node``: hashed whole, remembered by its length."""
        self.count += 1
        checksum = zlib.crc32(data)
        self.digest = hash((self.digest, time_ns, connection, len(data), checksum))
        self.recent.append(TraceEvent(time_ns, node, "receive", (f"connection={connection}", f"bytes={len(data)}")))

    def event(self, time_ns: int, node: str, kind: str, *detail: object) -> None:
        """Something worth reading. ``detail`` is hashed by its text, so it holds nothing that varies between runs."""
        self.count += 1
        happened = TraceEvent(time_ns, node, kind, detail)
        self.recent.append(happened)
        self.digest = hash((self.digest, time_ns, zlib.crc32(f"{node} {kind} {detail}".encode())))

    def tail(self, events: int = 200) -> str:
        """The last events, one a line, in the order they happened."""
        return "\n".join(map(str, list(self.recent)[-events:]))
