"""How far a group has read a partition."""

import msgspec

from ottla.runtime.identifiers import ZERO_ID

NEVER = -1
LATEST = 2**63 - 1
"""As late as a record can say it."""


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """The next offset to be read, and what the client said with it. Times are of day, in milliseconds."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    expire_time_ms: int = NEVER
    """Asked for by clients of Kafka before 2.1; else the group's state decides."""
    topic_id: bytes = ZERO_ID
