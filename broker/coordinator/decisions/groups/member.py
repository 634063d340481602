"""A member of a classic group."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

Protocols = Sequence[tuple[str, bytes]]
"""Names of assignment strategies, the preferred first, each with what the member tells the leader for it."""
PROTOCOL_BYTES = 150
"""What one takes in memory beside its texts."""


def bytes_of(protocols: Protocols, *texts: str | None) -> int:
    """Of memory, roughly, with other texts that are kept for a member."""
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols) + sum(
        len(text) for text in texts if text
    )


@dataclass(slots=True, eq=False)
class Member:
    """What a group knows of one of its processes."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Has never had an answer, so it does not know its id and sends no heartbeats."""
    is_behind: bool = False
    """It missed the last epoch of the consumer group that this was, and has not joined since. Known to this coordinator alone."""
    expires_ms: int = 0
    """The end of its session, by the shard's clock."""

    @property
    def size(self) -> int:
        """Bytes of memory for what the client said."""
        return bytes_of(self.protocols, self.client_id, self.instance_id)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Container[str]) -> str:
        """The first of its protocols that is among the candidates."""
        return next(name for name, _ in self.protocols if name in candidates)
