"""Leaders go back to the first replicas where a broker lacks more than leader.imbalance.per.broker.percentage of them."""

import pytest

from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.elections import rebalance_leaders
from ottla.quorum.metadata.records import partition_record
from ottla.quorum.metadata.views import PartitionView
from tests.unit.quorum.controller.conftest import TOPIC_ID, World, directory


def world_with(percentage: int, leaders: list[tuple[int, int]]) -> World:
    """``leaders``: the first replica and the leader of each partition, between 1 and 2."""
    world = World(imbalance_percentage=percentage).brokers(1, 2)
    world.replay([pb.MetadataRecord(topic=pb.Topic(name="t", topic_id=TOPIC_ID))])
    for index, (first, leader) in enumerate(leaders):
        replicas = (first, 3 - first)
        view = PartitionView(replicas, replicas, leader, 0, 0, directories=tuple(map(directory, replicas)))
        world.replay([partition_record(TOPIC_ID, index, view)])
    return world


def leaders(world: World) -> list[int]:
    while True:
        step = rebalance_leaders(world.state)
        world.replay(step.records)
        if step.is_last:
            return [each.leader for each in world.state.image.topics_by_id[TOPIC_ID].partitions.values()]


ONE_OF_FOUR_AND_TWO_OF_THREE = [(1, 2), (1, 1), (1, 1), (1, 1), (2, 1), (2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("percentage", "led_by"),
    [
        (0, [1, 1, 1, 1, 2, 2, 2]),
        (24, [1, 1, 1, 1, 2, 2, 2]),
        (25, [2, 1, 1, 1, 2, 2, 2]),  # broker 1 lacks a quarter of its own, no more
        (66, [2, 1, 1, 1, 2, 2, 2]),
        (67, [2, 1, 1, 1, 1, 1, 2]),
    ],
)
def test_leaders_go_back_to_brokers_that_lack_more_than_that(percentage: int, led_by: list[int]) -> None:
    assert leaders(world_with(percentage, ONE_OF_FOUR_AND_TWO_OF_THREE)) == led_by
