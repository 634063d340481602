"""Which replica a consumer of a rack reads from (KIP-392)."""

import pytest

from ottla.broker.replication.decisions.read_replicas import ReadReplica, nearest

LEADER = ReadReplica(1, "a", 100, 0)


@pytest.mark.parametrize(
    ("rack", "followers", "chosen"),
    [
        ("a", [ReadReplica(2, "a", 100, 5)], 1),
        ("c", [ReadReplica(2, "b", 100, 5)], 1),
        ("b", [ReadReplica(2, "b", 90, 5), ReadReplica(3, "c", 100, 5)], 2),
        ("b", [ReadReplica(2, "b", 90, 9), ReadReplica(3, "b", 95, 5)], 3),
        ("b", [ReadReplica(2, "b", 90, 5), ReadReplica(3, "b", 90, 9)], 3),
        ("b", [ReadReplica(3, "b", 90, 5), ReadReplica(2, "b", 90, 5)], 2),
        ("b", [ReadReplica(2, None, 90, 5)], 1),
    ],
    ids=["leader is there", "nobody is", "who is", "the furthest", "the freshest", "the first", "no rack told"],
)
def test_a_consumer_reads_from_the_nearest(rack: str, followers: list[ReadReplica], chosen: int) -> None:
    assert nearest(rack, LEADER, followers) == chosen
