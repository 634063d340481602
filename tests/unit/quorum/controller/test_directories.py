"""Which replicas lie in which directory, and what a lost directory costs (KIP-858)."""

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.alter_partition import alter_partition
from ottla.quorum.controller.decisions.directories import assign_replicas
from ottla.quorum.controller.decisions.elections import elect_leaders
from ottla.quorum.controller.decisions.elr import ELR_VERSION
from ottla.quorum.controller.decisions.features import UPGRADE, update_features
from ottla.quorum.metadata.views import DIRECTORY_LOST, DIRECTORY_NOT_MADE, DIRECTORY_UNASSIGNED, NO_LEADER
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.conftest import TOPIC_ID, World, directory, new_topic

FIRST, SECOND = b"first---" * 2, b"second--" * 2


def assign(
    world: World,
    place: bytes,
    topic_id: bytes = TOPIC_ID,
    index: int = 0,
    broker_id: int = 1,
    epoch: int | None = None,
    earlier: list[bytes] | None = None,
) -> int:
    """The error of one assignment. ``earlier``: where the replica lay before with all that it has."""
    request = rpc.AssignReplicasToDirectoriesRequest(
        broker_id=broker_id, broker_epoch=world.epoch(broker_id) if epoch is None else epoch
    )
    topic = request.directories.add(id=place).topics.add(topic_id=topic_id, partitions=[index])
    if earlier is not None:
        topic.moved.add(partition_index=index, earlier_directories=earlier)
    response = world.do(assign_replicas(world.state, request))
    (answered,) = response.directories
    assert (answered.id, answered.topics[0].topic_id) == (place, topic_id)
    return answered.topics[0].partitions[0].error_code


def propose(world: World, isr: list[int]) -> int:
    """The error of an ISR that the leader asks for."""
    leader, member = world.partition.leader, rpc.AlterPartitionRequest.Member
    asked = rpc.AlterPartitionRequest.Partition(
        leader_epoch=world.partition.leader_epoch,
        partition_epoch=world.partition.partition_epoch,
        new_isr=[member(broker_id=each, broker_epoch=-1) for each in isr],
    )
    request = rpc.AlterPartitionRequest(broker_id=leader, broker_epoch=world.epoch(leader))
    request.topics.add(topic_id=TOPIC_ID, partitions=[asked])
    return world.do(alter_partition(world.state, request)).topics[0].partitions[0].error_code


@pytest.fixture
def two() -> World:
    """Three brokers; the first has two directories."""
    world = World()
    world.register(1, directories=[FIRST, SECOND])
    world.heartbeat(1)
    return world.brokers(2, 3)


def test_a_broker_with_several_directories_decides_itself(two: World) -> None:
    two.create(new_topic("new", factor=3))
    topic_id = two.state.image.topics_by_name["new"].id
    partition = two.state.image.topics_by_id[topic_id].partitions[0]
    assert {each: partition.directory_of(each) for each in (1, 2, 3)} == {
        1: DIRECTORY_UNASSIGNED, 2: directory(2), 3: directory(3)
    }  # fmt: skip
    assert assign(two, SECOND, topic_id) == 0
    partition = two.state.image.topics_by_id[topic_id].partitions[0]
    assert [partition.directory_of(each) for each in (1, 2, 3)] == [SECOND, directory(2), directory(3)]


def test_an_assignment_changes_neither_leader_nor_isr(two: World) -> None:
    two.partition_of([1, 2, 3], places={1: DIRECTORY_UNASSIGNED})
    assert assign(two, SECOND) == 0
    assert two.standing == (1, (1, 2, 3), 5, 11)
    assert assign(two, FIRST) == 0
    assert two.standing == (1, (1, 2, 3), 5, 12)


def test_the_same_assignment_again_changes_nothing(two: World) -> None:
    two.partition_of([1, 2, 3])
    assign(two, SECOND)
    before = two.next_offset
    assert assign(two, SECOND) == 0
    assert two.next_offset == before


@pytest.mark.parametrize(
    ("topic_id", "index", "broker_id", "error"),
    [
        (b"?" * 16, 0, 1, ErrorCode.UNKNOWN_TOPIC_ID),
        (TOPIC_ID, 7, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_ID, 0, 3, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_assignments_of_what_is_not_there_are_refused(
    two: World, topic_id: bytes, index: int, broker_id: int, error: ErrorCode
) -> None:
    two.partition_of([1, 2])
    assert assign(two, SECOND, topic_id, index, broker_id) == error


def test_a_directory_id_of_another_length_is_refused(two: World) -> None:
    two.partition_of([1, 2])
    assert assign(two, b"short") == ErrorCode.INVALID_REQUEST


def test_a_former_life_assigns_nothing(two: World) -> None:
    two.partition_of([1, 2])
    with pytest.raises(KafkaError) as caught:
        assign(two, SECOND, epoch=two.epoch(1) - 1)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_lost_directory_costs_its_partitions_and_no_others(two: World) -> None:
    two.create(new_topic("kept", factor=3), new_topic("lost", factor=3))
    kept, lost = (two.state.image.topics_by_name[name].id for name in ("kept", "lost"))
    assign(two, FIRST, kept)
    assign(two, SECOND, lost)
    two.heartbeat(1, offline_directories=[SECOND])
    partition = two.state.image.topics_by_id[kept].partitions[0]
    assert 1 in partition.isr
    partition = two.state.image.topics_by_id[lost].partitions[0]
    assert 1 not in partition.isr
    assert partition.leader in (2, 3)
    assert two.state.image.brokers[1].directories == (FIRST,)


def test_what_was_in_a_directory_that_is_lost_already_is_lost_too(two: World) -> None:
    two.partition_of([1, 2, 3])
    two.heartbeat(1, offline_directories=[SECOND])
    assert assign(two, SECOND) == 0
    leader, isr, _, _ = two.standing
    assert (leader, isr) == (2, (2, 3))


def test_the_last_in_sync_replica_stays_so_when_its_directory_is_lost(two: World) -> None:
    two.partition_of([1, 2, 3], isr=[1], places={1: FIRST})
    assign(two, SECOND)
    two.heartbeat(1, offline_directories=[SECOND])
    assert two.standing[:2] == (NO_LEADER, (1,))
    assert not two.state.can_lead(two.partition, 1)


def test_who_is_back_in_service_without_a_directory_leads_nothing_in_it(two: World) -> None:
    """A disk that hung: the session was over first, and with the first heartbeat since the broker says what it lost."""
    two.partition_of([1, 2, 3], isr=[1], places={1: SECOND})
    two.fenced(1)
    leader_epoch = two.partition.leader_epoch
    two.heartbeat(1, offline_directories=[SECOND])
    assert two.state.image.brokers[1].fenced, "first what it lost"
    two.heartbeat(1, offline_directories=[SECOND])
    assert two.state.image.brokers[1].is_active
    assert (two.partition.leader, two.partition.leader_epoch) == (NO_LEADER, leader_epoch)


def test_a_replica_that_is_in_a_sound_directory_now_may_lead_at_once(two: World) -> None:
    two.partition_of([1], leader=NO_LEADER)
    assert assign(two, SECOND) == 0
    assert two.standing[:2] == (1, (1,))


def test_a_replica_whose_directory_is_lost_does_not_come_back_into_the_isr(two: World) -> None:
    two.partition_of([2, 1], isr=[2, 1])
    assign(two, SECOND)
    two.heartbeat(1, offline_directories=[SECOND])
    assert two.standing[:2] == (2, (2,))
    assert propose(two, [2, 1]) == ErrorCode.INELIGIBLE_REPLICA
    assert two.standing[:2] == (2, (2,))


# --- a disk that was replaced ---------------------------------------------------------------------------------------------


def comes_back_empty(world: World, broker_id: int) -> int:
    """With a new disk in the place of the one that it had; it makes its replica anew there, and says so."""
    world.now_ms += 60_000
    world.register(broker_id, incarnation=2, directories=[FIRST])
    error = assign(world, FIRST, broker_id=broker_id)
    world.heartbeat(broker_id)
    return error


def test_the_last_in_sync_does_not_lead_with_an_empty_disk() -> None:
    """The others left the ISR, and hold what it has lost: they would cut it off."""
    world = World().brokers(1, 2, 3)
    world.partition_of([1, 2, 3], isr=[1])
    comes_back_empty(world, 1)
    assert world.standing[:2] == (NO_LEADER, (1,))
    assert not world.state.image.brokers[1].has_directory(world.partition.directory_of(1))


def test_when_a_person_says_who_counts_it_is_not_the_empty_one_and_that_may_follow() -> None:
    world = World().brokers(1, 2, 3)
    world.partition_of([1, 2, 3], isr=[1])
    comes_back_empty(world, 1)
    request = rpc.ElectLeadersRequest(election_type=1)
    request.topics.add(name=world.state.image.topics_by_id[TOPIC_ID].name, partitions=[0])
    world.do(elect_leaders(world.state, request))
    assert world.standing[:2] == (2, (2,))
    assert assign(world, FIRST, broker_id=1) == 0
    assert world.partition.directory_of(1) == FIRST


def test_an_empty_disk_leaves_the_isr_where_others_are_in_it(two: World) -> None:
    two.partition_of([1, 2, 3])
    comes_back_empty(two, 1)
    assert two.standing[0] in (2, 3)
    assert 1 not in two.standing[1]


def test_the_only_replica_goes_on_empty_as_in_kafka() -> None:
    world = World().brokers(1)
    world.partition_of([1])
    comes_back_empty(world, 1)
    assert world.standing[:2] == (1, (1,))


def test_with_eligible_leaders_who_is_in_no_directory_any_more_is_not_known_as_the_last_to_lead(two: World) -> None:
    """It would lead with an empty log, and the others would cut what they have: it is one of them now, wherever it lies."""
    update = rpc.UpdateFeaturesRequest.Update(name=ELR_VERSION, max_version_level=1, upgrade_type=UPGRADE)
    two.do(update_features(two.state, rpc.UpdateFeaturesRequest(updates=[update])))
    two.partition_of([1, 2, 3], [1], NO_LEADER, places={1: FIRST})
    assert assign(two, DIRECTORY_LOST) == 0
    assert assign(two, SECOND) == 0
    assert two.standing[:2] == (NO_LEADER, ())
    assert two.partition.directory_of(1) == SECOND


# --- could not be made --------------------------------------------------------------------------------------------------


def is_made_nowhere(world: World) -> None:
    """Nobody had room for it: the first two did not at the same moment, and the third was away."""
    world.partition_of([1, 2, 3], isr=[1, 2], places={1: FIRST})
    for each in (1, 2):
        assert assign(world, DIRECTORY_NOT_MADE, broker_id=each) == 0


def test_who_had_no_room_for_a_new_replica_leaves_the_isr_where_others_are_in_it(two: World) -> None:
    two.partition_of([1, 2, 3], places={1: FIRST})
    assert assign(two, DIRECTORY_NOT_MADE) == 0
    assert two.standing[:2] == (2, (2, 3))


def test_the_last_that_had_no_room_leads_as_soon_as_it_has(two: World) -> None:
    """Nobody ever wrote to it. Its broker may have been started again meanwhile, and say nothing of where it was."""
    is_made_nowhere(two)
    assert two.standing[:2] == (NO_LEADER, (2,))
    assert assign(two, FIRST, broker_id=1) == 0
    assert two.standing[:2] == (NO_LEADER, (2,))
    assert assign(two, directory(2), broker_id=2) == 0
    assert two.standing[:2] == (2, (2,))


def test_with_eligible_leaders_the_last_that_had_no_room_leads_as_who_led_last(two: World) -> None:
    update = rpc.UpdateFeaturesRequest.Update(name=ELR_VERSION, max_version_level=1, upgrade_type=UPGRADE)
    two.do(update_features(two.state, rpc.UpdateFeaturesRequest(updates=[update])))
    is_made_nowhere(two)
    assert two.standing[:2] == (NO_LEADER, ())
    assert assign(two, directory(2), broker_id=2) == 0
    assert two.standing[:2] == (2, (2,))


def test_who_had_no_room_joins_no_isr_before_it_has_told_where_it_lies(two: World) -> None:
    """What it is given meanwhile may be gone with a disk, and nobody would know."""
    two.partition_of([1, 2, 3], isr=[2, 3], places={1: FIRST})
    assert assign(two, DIRECTORY_NOT_MADE) == 0
    assert propose(two, [2, 3, 1]) == ErrorCode.INELIGIBLE_REPLICA
    assert assign(two, SECOND) == 0
    assert propose(two, [2, 3, 1]) == 0


# --- moved out of a directory in time -------------------------------------------------------------------------------------


def loses_where_it_no_longer_is(two: World) -> None:
    """The last in sync went to a second directory and came back. The controller hears of the first move late, and of the second
    after that directory failed."""
    two.partition_of([1, 2, 3], isr=[1], places={1: FIRST})
    assert assign(two, SECOND, earlier=[FIRST]) == 0
    two.heartbeat(1, offline_directories=[SECOND])
    assert two.standing[0] == NO_LEADER


def test_who_left_a_directory_before_it_failed_lost_nothing(two: World) -> None:
    loses_where_it_no_longer_is(two)
    assert assign(two, FIRST, earlier=[FIRST, SECOND]) == 0
    assert two.standing[:2] == (1, (1,))


@pytest.mark.parametrize("earlier", [None, [FIRST], []])
def test_who_does_not_say_that_it_left_has_begun_anew(two: World, earlier: list[bytes] | None) -> None:
    loses_where_it_no_longer_is(two)
    assert assign(two, FIRST, earlier=earlier) == 0
    assert two.standing[:2] == (NO_LEADER, (1,))


def test_with_eligible_leaders_who_left_in_time_is_still_known_as_the_last_to_lead(two: World) -> None:
    """And leads once nobody is left who is eligible."""
    update = rpc.UpdateFeaturesRequest.Update(name=ELR_VERSION, max_version_level=1, upgrade_type=UPGRADE)
    two.do(update_features(two.state, rpc.UpdateFeaturesRequest(updates=[update])))
    two.configure("min.insync.replicas", "2")
    two.partition_of([1, 2, 3], isr=[2, 1], places={1: FIRST})
    assert assign(two, SECOND, earlier=[FIRST]) == 0
    two.fenced(2)
    two.heartbeat(1, offline_directories=[SECOND])
    now = two.partition
    assert (now.leader, now.isr, now.elr, now.last_known_elr) == (NO_LEADER, (), (2,), (1,))
    assert assign(two, FIRST, earlier=[FIRST, SECOND]) == 0
    assert two.partition.last_known_elr == (1,)
    two.register(2, incarnation=2)
    assert two.standing[:2] == (1, (1,))


def test_who_led_last_in_a_directory_that_failed_before_it_was_told_of_leads_when_that_is_whole_again(
    two: World,
) -> None:
    """It is not empty, as a replica that is in no directory is: the controller only heard in another order."""
    update = rpc.UpdateFeaturesRequest.Update(name=ELR_VERSION, max_version_level=1, upgrade_type=UPGRADE)
    two.do(update_features(two.state, rpc.UpdateFeaturesRequest(updates=[update])))
    two.partition_of([1, 2, 3], isr=[1], places={1: DIRECTORY_UNASSIGNED})
    two.fenced(1)
    two.register(1, incarnation=2, directories=[FIRST, SECOND])
    assert two.partition.last_known_elr == (1,), "it did not stop in order"
    two.heartbeat(1, fence=True, offline_directories=[SECOND])
    assert assign(two, SECOND) == 0
    assert (two.partition.leader, two.partition.isr, two.partition.last_known_elr) == (NO_LEADER, (), (1,))
    two.register(1, incarnation=3, directories=[FIRST, SECOND])
    two.heartbeat(1)
    assert two.standing[:2] == (1, (1,))
