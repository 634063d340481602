"""A member of a classic group."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

Protocols = Sequence[tuple[str, bytes]]
"""Names of assignment strategies, the preferred first, each with what the member tells the leader for it."""


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

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: Container[str]) -> str:
        """The first of its protocols that is among the candidates."""
        return next(name for name, _ in self.protocols if name in candidates)
