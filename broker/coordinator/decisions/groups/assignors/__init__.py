"""Who of a group reads which partitions, as the coordinator decides it (KIP-848): pure functions, by the names that clients give.

They work in pieces: a group of 10,000 members takes a tenth of a second.
"""

from collections.abc import Callable, Mapping

from ottla.broker.coordinator.decisions.groups.assignors.members import Assignment, MemberSpec
from ottla.broker.coordinator.decisions.groups.assignors.pieces import InPieces, Pace
from ottla.broker.coordinator.decisions.groups.assignors.ranges import assign_ranges
from ottla.broker.coordinator.decisions.groups.assignors.uniform import assign_uniformly

Assignor = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int], Pace], InPieces[dict[str, Assignment]]]
"""Of the members by id, and the numbers of partitions by topic id, the target of each member. It names only topics of which the member
gets partitions. A topic that is not among the numbers does not exist."""

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
"""The first is what a group has whose members ask for none (`group.consumer.assignors`)."""

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "MemberSpec"]
