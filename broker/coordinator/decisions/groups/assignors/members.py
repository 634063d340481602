"""What assignors are told of a group's members."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; no topic without a partition."""


class MemberSpec(NamedTuple):
    """One member. It does not change."""

    topics: frozenset[bytes]
    """The ids of the topics that it subscribes to."""
    target: Assignment = MappingProxyType({})
    """What it was to have until now."""
    instance_id: str | None = None
    rack_id: str | None = None
