"""The partitions that the leader of a classic group assigned to a member, as far as they can be read."""

from ottla.broker.coordinator.decisions.groups.embedded_protocol import Partitions, read_assignment
from ottla.broker.coordinator.decisions.groups.offset_store import Place
from ottla.broker.wire.errors import WireError


def assigned_partitions(assignment: bytes) -> Partitions:
    """None of a member whose client says it in its own way."""
    try:
        return read_assignment(assignment).partitions
    except (WireError, ValueError):
        return {}


def assigned_places(assignment: bytes) -> list[Place]:
    """The same, one by one."""
    partitions = assigned_partitions(assignment)
    return [Place(topic, index) for topic, indexes in partitions.items() for index in sorted(indexes)]
