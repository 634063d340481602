"""What a leader knows of one of its followers."""

import msgspec

UNKNOWN_OFFSET = -1
NEVER_MS = -(2**62)
"""Before anything was heard. Long ago on any clock: a machine's begins at 0 when it starts, and 0 is a moment ago for a while then."""


class BrokerStanding(msgspec.Struct, frozen=True):
    """A broker as the metadata log has it."""

    epoch: int
    fenced: bool
    shutting_down: bool


class FollowerContact:
    """When a follower's fetch session was last heard. One object for all the partitions of the session.

    An incremental session does not name a partition that did not change, yet each of its fetches covers every partition in
    it. Sharing the time keeps a fetch's work proportional to what changed.
    """

    __slots__ = ("last_fetch_ms",)

    def __init__(self, last_fetch_ms: int) -> None:
        self.last_fetch_ms = last_fetch_ms


class ReplicaState:
    """Offsets and times of a follower, on its leader. Times are monotonic milliseconds."""

    __slots__ = (
        "broker_epoch",
        "contact",
        "last_caught_up_ms",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "mark_ms",
        "mark_offset",
        "served_bytes",
        "served_offset",
    )

    def __init__(self, last_caught_up_ms: int = NEVER_MS) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = last_caught_up_ms
        self.last_fetch_ms = NEVER_MS
        self.mark_offset = UNKNOWN_OFFSET  # the leader's end at `mark_ms`, which the follower is on its way to
        self.mark_ms = NEVER_MS
        self.broker_epoch = -1
        self.contact: FollowerContact | None = None
        self.served_offset, self.served_bytes = UNKNOWN_OFFSET, 0  # from where it was last given records, and how much

    def served(self, offset: int, size_bytes: int) -> None:
        """It is given so much from ``offset`` on."""
        self.served_offset, self.served_bytes = offset, size_bytes

    def asks_again(self, offset: int) -> int:
        """How many bytes it was given last time that it asks for again, 0 if it does not: the answer got lost, or what was in it is not
        what its CRCs say.

        Once for each time they were given: the one who answers then looks for himself.
        """
        again = self.served_bytes if offset == self.served_offset else 0
        self.served_offset = UNKNOWN_OFFSET
        return again

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Takes in a fetch at ``offset``: it says the follower has everything below.

        Caught up *now* if that is all there is; else as of the time of the mark, once it is all there was then, and the next mark
        is set. Kafka sets one at each fetch: a follower that needs several fetches for what lies between (the producer is that
        far ahead) reaches none of them, and leaves the ISR however short its way is. ``leader_end_offset``: before the read.
        """
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        if offset >= self.mark_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.mark_ms)
            self.mark_offset, self.mark_ms = leader_end_offset, now_ms
        self.log_end_offset = offset
        self.last_fetch_ms = now_ms

    def leader_appended(self, previous_end: int) -> None:
        """The leader's end is about to move: a follower that had everything was caught up when its session last fetched."""
        if self.contact is not None and self.log_end_offset == previous_end:
            heard_ms = self.contact.last_fetch_ms
            self.last_caught_up_ms = max(self.last_caught_up_ms, heard_ms)
            # The session's last fetch covered this partition too, at the offset that was the end until now.
            self.last_fetch_ms = max(self.last_fetch_ms, heard_ms)
            self.mark_offset, self.mark_ms = previous_end, max(self.mark_ms, heard_ms)

    @property
    def has_fetched(self) -> bool:
        """Whether it fetched in this epoch, and named the partition."""
        return self.last_fetch_ms != NEVER_MS

    def is_heard_of(self, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it fetched of late in this epoch, or its session did, which covers this partition.

        The time is that after which who is silent leaves the ISR: whoever left for it is not heard of, and an idle session, which
        fetches once in `replica.fetch.wait.max.ms`, is, wherever that time is the longer one.
        """
        heard_ms = max(self.last_fetch_ms, self.contact.last_fetch_ms if self.contact is not None else NEVER_MS)
        return now_ms - heard_ms <= lag_time_max_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms
