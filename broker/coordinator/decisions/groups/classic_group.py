"""A classic group (the protocol of Kafka's JoinGroup and SyncGroup): who belongs to it, and where its rebalance stands."""

from collections import Counter
from collections.abc import Iterator
from enum import Enum

from ottla.broker.coordinator.decisions.effects import Asker
from ottla.broker.coordinator.decisions.groups.member import Member, Protocols
from ottla.runtime.errors import ErrorCode


class GroupState(Enum):
    """Kafka's names (kraft.md 5.2)."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


_BEFORE = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
}


class ClassicGroup:
    """Members and generation. Nobody is answered here and nothing is written: `Rebalancing` does that."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.id = group_id
        self.state = self.state_before = GroupState.EMPTY
        self.since_ms = now_ms
        """When the state changed, by the time of day; it is in the group's record."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.joining: dict[str, Asker] = {}
        """Members that wait for the end of the rebalance."""
        self.syncing: dict[str, Asker] = {}
        """Members that wait for the leader's assignment."""
        self.static: dict[str, str] = {}
        """Member ids by instance id (KIP-345)."""
        self.pending: set[str] = set()
        """Ids that were given and whose owners have not joined with them yet (KIP-394)."""
        self.unsynced: set[str] = set()
        """Members that have joined this generation and have not asked for their assignment."""
        self.is_assigned = False
        """The leader has brought the assignments of this generation."""
        self.joined_meanwhile = False
        """A member came while a first rebalance waits for more of them."""
        self._bytes = 0
        self._supporters: Counter[str] = Counter()

    def change(self, state: GroupState, now_ms: int) -> None:
        if self.state not in _BEFORE[state]:
            raise RuntimeError(f"group {self.id}: {self.state.value} cannot become {state.value}")
        self.state_before, self.state, self.since_ms = self.state, state, now_ms

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    # --- members ------------------------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """The first one makes it its kind of group, and leads it."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.id] = member
        self._count(member, 1)
        self.pending.discard(member.id)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.id
        if self.leader_id is None:
            self.leader_id = member.id

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, by: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] += by
        self._bytes += by * member.size

    def bytes_without(self, member_id: str) -> int:
        """What all members have said takes, but for one that says its own again."""
        member = self.members.get(member_id)
        return self._bytes - (member.size if member is not None else 0)

    def remove(self, member_id: str) -> Member | None:
        """The eldest of those that stay leads when it was the leader. Who waits for an answer has had it before."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        if member is not None and member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename(self, member: Member, new_id: str) -> None:
        """A static member is another process now; its place, and its leadership, stay. The old one has been answered."""
        old_id = member.id
        self.members = {new_id if each_id == old_id else each_id: each for each_id, each in self.members.items()}
        member.id = new_id
        if member.instance_id is not None:
            self.static[member.instance_id] = new_id
        self.joining.pop(old_id, None)
        self.syncing.pop(old_id, None)
        if old_id in self.unsynced:
            self.unsynced.discard(old_id)
            self.unsynced.add(new_id)
        if self.leader_id == old_id:
            self.leader_id = new_id

    def error_of(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether there is such a member. A static one must be the process that came last."""
        if instance_id is not None:
            known_id = self.static.get(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.NONE if known_id == member_id else ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def absent(self) -> Iterator[Member]:
        """Members that have not joined the rebalance."""
        return (each for each in self.members.values() if each.id not in self.joining)

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and len(self.joining) == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """As long as the slowest may take."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    # --- protocols ----------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody with these could join: with one of them that all others have."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and any(self._is_common(name) for name, _ in protocols)

    def chosen_protocol(self) -> str | None:
        """The one with the most votes among those that all members have; None without members."""
        candidates = {name for name in self._supporters if self._is_common(name)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=lambda name: votes[name]) if votes else None

    def _is_common(self, protocol: str) -> bool:
        return self._supporters[protocol] == len(self.members)

    def begin_generation(self, now_ms: int) -> None:
        """Who has joined by now is in it."""
        self.generation = self.generation + 1 if self.generation < _GENERATION_MAX else 1
        self.unsynced.clear()
        self.is_assigned = False
        self.protocol = self.chosen_protocol()
        self.change(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)

    def elect_leader(self) -> bool:
        """The leader, if it has joined, else the first that has. False: nobody has joined."""
        if self.leader_id not in self.joining:
            joined = next((each for each in self.members if each in self.joining), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True


_GENERATION_MAX = 2**31 - 1
