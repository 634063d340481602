"""JoinGroup (11), in the words of the rules."""

from dataclasses import dataclass

from ottla.broker.coordinator.decisions.effects import Asker, Effects
from ottla.broker.coordinator.decisions.groups.member import Protocols, bytes_of
from ottla.broker.coordinator.decisions.groups.rebalance import join_refused
from ottla.broker.coordinator.decisions.record_format import fits
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest
from ottla.runtime.errors import ErrorCode

_ID_REQUIRED_FROM = 4
_REBALANCE_TIMEOUT_FROM = 1
_NAME_CHARACTERS_MAX = 1_000
"""Of a client's name in its member id, which a record's key has to hold."""
METADATA_BYTES_MAX = 8 << 20
"""Of one group in memory, names included; what of it is written has to fit into one record."""


@dataclass(slots=True, frozen=True)
class Joining:
    """One request, in the words of the rules."""

    asker: Asker
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str

    @classmethod
    def of(cls, asker: Asker, request: JoinGroupRequest) -> "Joining":
        has_timeout = asker.version >= _REBALANCE_TIMEOUT_FROM and request.rebalance_timeout_ms >= 0
        return cls(
            asker,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            [(each.name, each.metadata) for each in request.protocols],
            request.session_timeout_ms,
            request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
            request.reason or "",
        )

    @property
    def size(self) -> int:
        """Bytes of memory that the member takes for it."""
        return bytes_of(self.protocols, self.asker.client_id, self.instance_id)

    @property
    def can_be_written(self) -> bool:
        """Whether the group's record can hold its texts."""
        return all(map(fits, (self.protocol_type, self.instance_id or "", *(name for name, _ in self.protocols))))

    def refuse(self, error: ErrorCode, member_id: str | None = None) -> None:
        self.asker.answer(join_refused(self.asker, self.member_id if member_id is None else member_id, error))

    @property
    def needs_id(self) -> bool:
        """It has to join again with the id that it is given: a client that is gone leaves no member behind (KIP-394)."""
        return not self.member_id and self.instance_id is None and self.asker.version >= _ID_REQUIRED_FROM


def new_member_id(joining: Joining, effects: Effects) -> str:
    name = joining.instance_id if joining.instance_id is not None else joining.asker.client_id
    return f"{name[:_NAME_CHARACTERS_MAX]}-{effects.new_id()}"
