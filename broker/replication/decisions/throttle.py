"""How fast replicas that catch up are fed: `leader.` and `follower.replication.throttled.rate`, for the replicas that a topic
names (KIP-73).

A replica in sync is never held back: the producers that wait for it would be. Pure: it is told what went and what time it is.
"""

from collections.abc import Sequence

UNLIMITED = 2**63 - 1
ASK_AGAIN_MS = 1_000
"""However long the wait is: the rate may be another by then."""
ALL = "*"


class ReplicationThrottle:
    """What went of late, as bytes that are still too many; they go down by ``rate`` a second. So the mean is the rate from the
    first byte on, beyond one answer (Kafka lets ten seconds' worth go first)."""

    __slots__ = ("_at_ms", "_too_many", "rate")

    def __init__(self, rate: int = UNLIMITED) -> None:
        self.rate = rate
        """Bytes a second; may be set at any time."""
        self._too_many = 0.0
        self._at_ms = 0

    @property
    def is_on(self) -> bool:
        return self.rate < UNLIMITED

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing may go; 0: it may."""
        self._pass(now_ms)
        if not self.is_on or (self._too_many <= 0 and self.rate > 0):
            return 0
        if self.rate == 0:
            return ASK_AGAIN_MS
        return min(ASK_AGAIN_MS, int(self._too_many * 1000 / self.rate) + 1)

    def passed(self, size: int, now_ms: int) -> None:
        """So many bytes went."""
        self._pass(now_ms)
        if self.is_on:
            self._too_many += size

    def _pass(self, now_ms: int) -> None:
        elapsed_ms, self._at_ms = now_ms - self._at_ms, now_ms
        self._too_many = max(0.0, self._too_many - self.rate * elapsed_ms / 1000) if self.is_on else 0.0


def names_replica(throttled_replicas: Sequence[str], index: int, broker_id: int) -> bool:
    """Whether a topic's list names that broker's replica: ``*`` names all, ``3:1`` that of partition 3 on broker 1."""
    return bool(throttled_replicas) and (ALL in throttled_replicas or f"{index}:{broker_id}" in throttled_replicas)
