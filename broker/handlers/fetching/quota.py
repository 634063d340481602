"""What a leader's throttle leaves to one look at a follower's partitions."""

from ottla.broker.handlers.fetching.fetch_read import PLENTY
from ottla.broker.replication.decisions.throttle import ReplicationThrottle
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.throttling import feeds_throttled


class Quota:
    """Nothing is counted here for good: the look may end without an answer."""

    def __init__(self, throttle: ReplicationThrottle, follower_id: int, now_ms: int) -> None:
        self._follower_id = follower_id
        self._left = 0 if throttle.wait_ms(now_ms) else max(1, throttle.rate)  # a second's worth, at once
        self._is_throttled = False
        self._throttle, self._now_ms = throttle, now_ms
        self._keeps_back = False

    def holds(self, partition: Partition | None) -> bool:
        """Whether the partition, which is looked at next, gets no records this time."""
        self._is_throttled = partition is not None and feeds_throttled(partition, self._follower_id)
        held = self._is_throttled and self._left <= 0
        self._keeps_back = self._keeps_back or held
        return held

    @property
    def room(self) -> int:
        """The most that partition may be given; a batch that is larger goes whole, as ever."""
        return max(0, self._left) if self._is_throttled else PLENTY

    def read(self, size: int) -> None:
        """So much of that partition goes into the answer."""
        if self._is_throttled:
            self._left -= size

    @property
    def wait_ms(self) -> int:
        """For how long the throttle keeps back what it kept back; 0: nothing."""
        return self._throttle.wait_ms(self._now_ms) if self._keeps_back else 0
