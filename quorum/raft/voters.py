"""Who votes: replica keys, voter sets, and the history of voter sets in the log (KIP-853).

A replica is named by (node id, directory id): a node that lost its disk is another replica, which remembers none of the
votes and acknowledgements of the first. A static quorum (voters from the configuration) knows no directory ids; they are
None there and match any.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

KRAFT_VERSION = "kraft.version"
STATIC_VOTERS, VOTERS_IN_LOG = 0, 1
"""Levels of the feature kraft.version (KIP-853)."""


class Endpoint(NamedTuple):
    """Where a node listens."""

    host: str
    port: int


class ReplicaKey(NamedTuple):
    """Node id and the 16-byte id of its metadata directory (None: not known)."""

    id: int
    directory_id: bytes | None = None

    def matches(self, other: "ReplicaKey") -> bool:
        """Whether both may name one replica: same node and no contradiction about the directory."""
        if self.id != other.id:
            return False
        return self.directory_id is None or other.directory_id is None or self.directory_id == other.directory_id


class Voter(NamedTuple):
    """A member of the quorum and where it is reached."""

    key: ReplicaKey
    endpoint: Endpoint


class VoterSet(msgspec.Struct, frozen=True):
    """The voters of one moment, ordered by node id; a node id occurs once."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> "VoterSet":
        """The set of these voters, sorted. Raises ValueError when a node id occurs twice."""
        ordered = tuple(sorted(voters, key=lambda voter: voter.key.id))
        if len({voter.key.id for voter in ordered}) != len(ordered):
            raise ValueError("a node id occurs twice in the voter set")
        return cls(ordered)

    def __len__(self) -> int:
        return len(self.voters)

    def ids(self) -> tuple[int, ...]:
        return tuple(voter.key.id for voter in self.voters)

    def get(self, node_id: int) -> Voter | None:
        for voter in self.voters:
            if voter.key.id == node_id:
                return voter
        return None

    def contains(self, key: ReplicaKey) -> bool:
        """Whether the replica votes: node id *and* directory (where both are known)."""
        voter = self.get(key.id)
        return voter is not None and voter.key.matches(key)

    def endpoint(self, node_id: int) -> Endpoint | None:
        voter = self.get(node_id)
        return None if voter is None else voter.endpoint

    def others(self, node_id: int) -> tuple[Voter, ...]:
        return tuple(voter for voter in self.voters if voter.key.id != node_id)

    def with_voter(self, voter: Voter) -> "VoterSet":
        """The set with ``voter`` added, or put in the place of the same node id."""
        return VoterSet.of((*self.others(voter.key.id), voter))

    def without(self, node_id: int) -> "VoterSet":
        return VoterSet(self.others(node_id))


class VoterHistory(msgspec.Struct):
    """Voter sets by the offset of the record that brought them. The newest counts as soon as it is appended (KIP-853),
    so truncating the log takes voter sets back."""

    static: VoterSet
    entries: tuple[tuple[int, VoterSet], ...] = ()

    @property
    def latest(self) -> VoterSet:
        return self.entries[-1][1] if self.entries else self.static

    @property
    def latest_offset(self) -> int:
        """Offset of the record behind ``latest``; -1 when it is the configuration's."""
        return self.entries[-1][0] if self.entries else -1

    @property
    def previous(self) -> VoterSet:
        """The set before ``latest``: in force again if its record is cut off."""
        return self.entries[-2][1] if len(self.entries) > 1 else self.static

    @property
    def kraft_version(self) -> int:
        """`kraft_version_at` the end of the log."""
        return VOTERS_IN_LOG if self.entries else self._formatted_version

    def kraft_version_at(self, end_offset: int) -> int:
        """Kafka's feature for a log that ends there: the log names the voters, or these are the ones of the settings. A level
        of its own is not kept: the record that raises it always comes with the voters' first."""
        return VOTERS_IN_LOG if self.entries and self.entries[0][0] < end_offset else self._formatted_version

    @property
    def _formatted_version(self) -> int:
        """Voters that a directory was formatted with are told by their directories, those of the settings are not."""
        static = self.static.voters
        formatted = bool(static) and all(voter.key.directory_id is not None for voter in static)
        return VOTERS_IN_LOG if formatted else STATIC_VOTERS

    def append(self, offset: int, voters: VoterSet) -> None:
        assert offset > self.latest_offset, "voter sets arrive in log order"
        self.entries = (*self.entries, (offset, voters))

    def truncate(self, end_offset: int) -> None:
        """Forgets the sets whose records were cut off."""
        self.entries = tuple((offset, voters) for offset, voters in self.entries if offset < end_offset)

    def forget_below(self, log_start: int) -> None:
        """Nobody asks for sets that were over before the log begins; the one that was in force there stays, and the one before it."""
        below = sum(1 for offset, _ in self.entries if offset < log_start)
        self.entries = self.entries[max(0, below - 2) :]

    def at(self, offset: int) -> VoterSet:
        """The set in force for a log that ends at ``offset``: what a snapshot there must carry."""
        return next((voters for start, voters in reversed(self.entries) if start < offset), self.static)

    def replace(self, offset: int, voters: VoterSet | None) -> None:
        """Starts again from a snapshot that ends at ``offset`` (the record lies somewhere before it)."""
        self.entries = () if voters is None else ((offset - 1, voters),)
