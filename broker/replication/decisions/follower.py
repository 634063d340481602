"""A partition's follower: from where it fetches, and what each answer of the leader makes it do.

Pure: `answered` takes one partition's part of a Fetch response and returns the one instruction that follows. The shell
performs it and reports back with `appended`, `truncated` or `restarted`, or with `interrupted`. Kafka's AbstractFetcherThread; kraft.md 3.5.
"""

from enum import Enum

import msgspec

from ottla.broker.replication.decisions.truncation import Diverging, EndOffsetForEpoch, truncation_offset
from ottla.runtime.errors import ErrorCode

FIRST_DELAY_MS = 20
"""A follower often hears of a new leader a moment before the leader itself does; Kafka's flat second would be felt."""


class FetchState(Enum):
    FETCHING = "asks for records"
    TRUNCATING = "cuts a branch the leader does not have, then asks again"
    FINDING_OFFSETS = "was out of range: asks where the leader's log begins and ends"
    FAILED = "waits for the next leader epoch"


class Append(msgspec.Struct, frozen=True):
    """Write the records, then adopt the leader's high watermark and log start."""

    high_watermark: int
    log_start_offset: int


class TruncateTo(msgspec.Struct, frozen=True):
    offset: int


class RestartAt(msgspec.Struct, frozen=True):
    """Drop the whole log; the next record to come has this offset."""

    offset: int


class BeginAt(msgspec.Struct, frozen=True):
    """The leader deleted all that we have, which is committed: the log begins at its end, and producers' numbers stay known."""

    offset: int


class FindOffsets(msgspec.Struct, frozen=True):
    """Ask the leader for its earliest and latest offsets, then call `offsets_found`."""


class Delay(msgspec.Struct, frozen=True):
    """Leave the partition out for so long, then fetch again."""

    delay_ms: int


class Fail(msgspec.Struct, frozen=True):
    """Leave the partition out until the leader epoch changes."""

    reason: str


Instruction = Append | TruncateTo | RestartAt | BeginAt | FindOffsets | Delay | Fail


class PartitionFollower:
    """The fetch position of one partition in one leader epoch."""

    __slots__ = (
        "backoff_max_ms",
        "fetch_offset",
        "last_fetched_epoch",
        "leader_epoch",
        "leaders_high_watermark",
        "retries",
        "state",
    )

    def __init__(self, leader_epoch: int, fetch_offset: int, last_fetched_epoch: int, backoff_max_ms: int) -> None:
        """``last_fetched_epoch`` is the epoch of the log's last batch, -1 if it has none."""
        self.leader_epoch = leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.backoff_max_ms = backoff_max_ms
        self.leaders_high_watermark = -1  # as of its last answer; for the lag that is shown
        self.retries = 0
        self.state = FetchState.FETCHING

    def expects(self, fetch_offset: int, leader_epoch: int) -> bool:
        """Whether an answer to a request made with these still speaks of the log as it is; else it must be ignored."""
        return (
            self.state is FetchState.FETCHING
            and fetch_offset == self.fetch_offset
            and leader_epoch == self.leader_epoch
        )

    def answered(
        self,
        error: int,
        high_watermark: int,
        log_start_offset: int,
        diverging: Diverging | None,
        log_end_offset: int,
        end_offset_for_epoch: EndOffsetForEpoch,
    ) -> Instruction:
        """What one partition's answer asks for. Call only after `expects`."""
        if error == ErrorCode.NONE:
            if diverging is None:
                self.leaders_high_watermark = high_watermark
                return Append(high_watermark, log_start_offset)
            self.state = FetchState.TRUNCATING
            return TruncateTo(truncation_offset(diverging, log_end_offset, self.fetch_offset, end_offset_for_epoch))
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.state = FetchState.FINDING_OFFSETS
            return FindOffsets()
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            # The leader is further than we: only the metadata log can help. Fetching again would get the same answer.
            return self.fail("the leader has a newer epoch")
        return self.delay()

    def offsets_found(
        self, leader_start: int, leader_end: int, log_end_offset: int, high_watermark: int
    ) -> Instruction:
        """Out of range, and the leader's log reaches from ``leader_start`` to ``leader_end``.

        If it ends before ours, ours has an uncommitted (or uncleanly lost) tail: cut it. Else ours lies below its start, is of
        no use any more and perhaps never was the leader's; or it reaches further, and fetching there goes on.
        """
        self.state = FetchState.TRUNCATING
        if leader_end < log_end_offset:
            return TruncateTo(leader_end)
        if leader_start == log_end_offset == high_watermark:
            return BeginAt(leader_start)
        if leader_start >= log_end_offset:
            return RestartAt(leader_start)
        return TruncateTo(log_end_offset)

    def appended(self, log_end_offset: int, last_epoch: int) -> None:
        """The log now ends at ``log_end_offset``, its last batch of epoch ``last_epoch``: fetch from there."""
        self.fetch_offset = log_end_offset
        self.last_fetched_epoch = last_epoch
        self.state = FetchState.FETCHING

    truncated = appended
    restarted = appended

    def succeeded(self) -> None:
        """What an answer asked for is done, so the next failure is a first one. An answer alone says nothing: its records may be refused."""
        self.retries = 0

    def interrupted(self, log_end_offset: int, last_epoch: int) -> Delay:
        """What an answer asked for failed, perhaps half-way: fetching goes on from where the log ends now. A log without an epoch may
        be longer than what is compared; it is never fetched behind its end."""
        if last_epoch >= 0 or log_end_offset < self.fetch_offset:
            if log_end_offset > self.fetch_offset:
                self.retries = 0
            self.fetch_offset = log_end_offset
            self.last_fetched_epoch = last_epoch
        return self.delay()

    def delay(self) -> Delay:
        """Doubles from a few milliseconds up to ``replica.fetch.backoff.ms``."""
        delay_ms = min(self.backoff_max_ms, FIRST_DELAY_MS << min(self.retries, 16))
        self.retries += 1
        self.state = FetchState.FETCHING
        return Delay(delay_ms)

    def fail(self, reason: str) -> Fail:
        self.state = FetchState.FAILED
        return Fail(reason)
