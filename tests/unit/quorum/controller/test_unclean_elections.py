"""Partitions without a leader, of which any live replica may lead from now on: by a setting that changed, or on request."""

import pytest
from msgspec import structs

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions import sweep
from ottla.quorum.controller.decisions.chores import has_chores, next_chore
from ottla.quorum.controller.decisions.elections import elect_leaders
from ottla.quorum.metadata.records import partition_record
from ottla.quorum.metadata.views import BROKER_RESOURCE, NO_LEADER, RECOVERING, TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode
from tests.unit.quorum.controller.conftest import TOPIC_ID, World
from tests.unit.quorum.controller.controller_bench import SELF, Bench, create

UNCLEAN = "unclean.leader.election.enable"


@pytest.fixture
def leaderless(world: World) -> World:
    """The only replica in sync is gone; another lives."""
    world.partition_of([1, 2, 3], isr=[1])
    world.fenced(1, 3)
    world.do_chores()
    assert world.standing[:2] == (NO_LEADER, (1,))
    return world


def unset(world: World, resource_type: int, resource: str) -> None:
    world.replay(
        [pb.MetadataRecord(config=pb.Config(resource_type=resource_type, resource_name=resource, name=UNCLEAN))]
    )


@pytest.mark.parametrize(("resource_type", "resource"), [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "")])
def test_a_setting_that_allows_it_finds_a_leader_at_once(leaderless: World, resource_type: int, resource: str) -> None:
    leaderless.configure(UNCLEAN, "true", resource_type, resource)
    leaderless.do_chores()
    assert leaderless.standing[:2] == (2, (2,))
    assert leaderless.partition.leader_recovery_state == RECOVERING


def test_a_topic_that_forbade_it_for_itself_and_does_no_more_finds_a_leader(leaderless: World) -> None:
    leaderless.configure(UNCLEAN, "false").configure(UNCLEAN, "true", BROKER_RESOURCE, "")
    leaderless.do_chores()
    assert leaderless.standing[0] == NO_LEADER, "the topic's own setting goes first"
    unset(leaderless, TOPIC_RESOURCE, "t")
    leaderless.do_chores()
    assert leaderless.standing[0] == 2


def test_the_controllers_own_node_may_be_told_otherwise_than_all_nodes(leaderless: World) -> None:
    leaderless.state.settings = structs.replace(leaderless.state.settings, node_id=7)
    leaderless.configure(UNCLEAN, "true", BROKER_RESOURCE, "8")
    leaderless.do_chores()
    assert leaderless.standing[0] == NO_LEADER
    leaderless.configure(UNCLEAN, "true", BROKER_RESOURCE, "7")
    leaderless.do_chores()
    assert leaderless.standing[0] == 2


def test_what_may_not_be_led_by_anybody_stays_without_a_leader(leaderless: World) -> None:
    leaderless.configure(UNCLEAN, "false").configure("retention.ms", "5")
    assert leaderless.state.reconsiders_leaderless
    leaderless.do_chores()
    assert leaderless.standing[:2] == (NO_LEADER, (1,))


def test_other_settings_look_at_no_partition(leaderless: World) -> None:
    leaderless.configure("retention.ms", "5")
    assert not has_chores(leaderless.state)


def test_a_rule_that_changes_under_a_sweep_is_heard_by_what_lies_behind_it(
    leaderless: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "LOOKS_MAX", 1)
    leaderless.replay([partition_record(TOPIC_ID, 1, leaderless.partition)])
    leaderless.configure(UNCLEAN, "false")
    assert next_chore(leaderless.state).records == []  # has looked at the first of two, by the rule of before
    leaderless.configure(UNCLEAN, "true")
    leaderless.do_chores()
    partitions = leaderless.state.image.topics_by_id[TOPIC_ID].partitions
    assert [partitions[index].leader for index in (0, 1)] == [2, 2]


def test_with_nobody_alive_the_first_to_come_back_leads(leaderless: World) -> None:
    leaderless.fenced(2)
    leaderless.configure(UNCLEAN, "true")
    leaderless.do_chores()
    assert leaderless.standing[0] == NO_LEADER
    leaderless.heartbeat(3)
    leaderless.do_chores()
    assert leaderless.standing[:2] == (3, (3,))


def test_now_and_then_the_leaderless_are_looked_at_in_any_case() -> None:
    """A controller whose own file allows it, and a partition that lost its leader in a way nobody thought of."""
    bench = Bench(unclean_interval_ms=60_000, session_timeout_ms=10_000_000, topic_defaults={UNCLEAN: "true"})
    bench.lead().commit()
    bench.broker(1)
    bench.ask(**create("a"))
    bench.commit()
    bench.loop.advance(1_000)  # what its predecessor may have left undone is done
    leadership = bench.controller._leadership
    assert leadership is not None
    [topic_id] = bench.loader.image.topics_by_id
    change = pb.PartitionChange(topic_id=topic_id, partition_id=0, leader=NO_LEADER)
    leadership.append_own([pb.MetadataRecord(partition_change=change)], "a mistake")
    bench.commit()
    assert bench.loader.image.topics_by_id[topic_id].partitions[0].leader == NO_LEADER
    bench.loop.advance(58_000)
    bench.commit()
    assert bench.loader.image.topics_by_id[topic_id].partitions[0].leader == NO_LEADER
    bench.loop.advance(2_000)
    bench.commit()
    assert bench.loader.image.topics_by_id[topic_id].partitions[0].leader == SELF
    assert bench.quorum.log[-1].cause == "nobody led where any replica may"


def test_a_partition_that_is_named_twice_is_elected_for_once(leaderless: World) -> None:
    topics = [rpc.ElectLeadersRequest.Topic(name="t", partitions=[0, 0]) for _ in range(2)]
    before = leaderless.partition
    answer = leaderless.do(elect_leaders(leaderless.state, rpc.ElectLeadersRequest(election_type=1, topics=topics)))
    [topic] = answer.topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE]
    assert leaderless.state.image.topics_by_id[TOPIC_ID].partitions[0].leader_epoch == before.leader_epoch + 1
