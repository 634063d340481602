"""Eligible leader replicas (KIP-966; kraft.md 2.5)."""

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.decisions.alter_partition import alter_partition
from ottla.quorum.controller.decisions.cluster import register_broker, unregister_broker
from ottla.quorum.controller.decisions.configs import DELETE, SET, incremental_alter_configs
from ottla.quorum.controller.decisions.damage import report_damage
from ottla.quorum.controller.decisions.directories import assign_replicas
from ottla.quorum.controller.decisions.elections import elect_leaders
from ottla.quorum.controller.decisions.elr import eligible, out_of_sync
from ottla.quorum.controller.decisions.features import SAFE_DOWNGRADE, UPGRADE, update_features
from ottla.quorum.controller.decisions.partition_change import NOBODY, PartitionChangeBuilder
from ottla.quorum.controller.decisions.reassignments import alter_partition_reassignments
from ottla.quorum.metadata.image import changed_partition
from ottla.quorum.metadata.views import BROKER_RESOURCE, RECOVERED, RECOVERING, TOPIC_RESOURCE, PartitionView
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.conftest import TOPIC_ID, World, directory

ELR_VERSION = "eligible.leader.replicas.version"
MIN_IN_SYNC = "min.insync.replicas"


def set_level(world: World, level: int, kind: int = UPGRADE) -> None:
    update = rpc.UpdateFeaturesRequest.Update(name=ELR_VERSION, max_version_level=level, upgrade_type=kind)
    world.do(update_features(world.state, rpc.UpdateFeaturesRequest(updates=[update])))


def configure(world: World, kind: int, name: str, value: str | None) -> int:
    change = rpc.IncrementalAlterConfigsRequest.Change(name=MIN_IN_SYNC, operation=DELETE if value is None else SET)
    if value is not None:
        change.value = value
    resource = rpc.IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name=name, changes=[change])
    request = rpc.IncrementalAlterConfigsRequest(resources=[resource])
    code: int = world.do(incremental_alter_configs(world.state, request)).resources[0].error_code
    return code


@pytest.fixture
def world() -> World:
    """Three brokers, a partition of three replicas, two of which must be in sync."""
    made = World(topic_defaults={MIN_IN_SYNC: "2"}).brokers(1, 2, 3)
    set_level(made, 1)
    return made.partition_of([1, 2, 3])


def in_sync(world: World, *isr: int) -> rpc.AlterPartitionResponse.Partition:
    now = world.partition
    members = [rpc.AlterPartitionRequest.Member(broker_id=each, broker_epoch=-1) for each in isr]
    body = rpc.AlterPartitionRequest.Partition(
        new_isr=members, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch
    )
    topic = rpc.AlterPartitionRequest.Topic(topic_id=TOPIC_ID, partitions=[body])
    request = rpc.AlterPartitionRequest(broker_id=now.leader, broker_epoch=world.epoch(now.leader), topics=[topic])
    return world.do(alter_partition(world.state, request)).topics[0].partitions[0]


def restart(world: World, broker_id: int, *, in_order: bool) -> None:
    """Another incarnation registers, and is in service."""
    before = world.epoch(broker_id) if in_order else -1
    world.now_ms += 60_000
    incarnation = world.next_offset
    while True:
        request = world.registration(broker_id, incarnation % 250, previous_broker_epoch=before)
        decision = register_broker(world.state, request, world.next_offset, world.now_ms)
        world.do(decision)
        if decision.is_last:
            break
    world.heartbeat(broker_id)
    world.do_chores()


def trusted(world: World) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Leader, ISR, eligible and last known."""
    now = world.partition
    return now.leader, now.isr, now.elr, now.last_known_elr


# --- who is eligible --------------------------------------------------------------------------------------------------


def test_who_leaves_an_isr_that_is_large_enough_without_it_is_not_eligible(world: World) -> None:
    in_sync(world, 1, 2)
    assert trusted(world) == (1, (1, 2), (), ())


def test_who_leaves_an_isr_that_is_too_small_without_it_is_eligible(world: World) -> None:
    in_sync(world, 1, 2)
    in_sync(world, 1)
    assert trusted(world) == (1, (1,), (2,), ()), "3 lacks what was committed without it"


def test_all_who_leave_together_are_eligible(world: World) -> None:
    in_sync(world, 1)
    assert trusted(world) == (1, (1,), (2, 3), ())


def test_nobody_is_eligible_any_more_when_enough_are_in_sync_again(world: World) -> None:
    in_sync(world, 1)
    in_sync(world, 1, 3)
    assert trusted(world) == (1, (1, 3), (), ())


def test_the_last_in_sync_leaves_too_and_is_eligible(world: World) -> None:
    world.fenced(2, 3, 1)
    assert trusted(world) == (-1, (), (3, 1), (1,)), "2 left when two were in sync without it"


def test_an_eligible_replica_leads_when_nobody_is_in_sync(world: World) -> None:
    in_sync(world, 1)
    world.fenced(1)
    leader, isr, elr, known = trusted(world)
    assert (leader, isr, elr, known) == (2, (2,), (3, 1), ())
    assert world.partition.leader_recovery_state == RECOVERED, "nothing is lost"


def test_who_is_in_sync_goes_before_who_is_eligible(world: World) -> None:
    in_sync(world, 1, 2)
    in_sync(world, 2, 1)
    in_sync(world, 1)
    assert trusted(world) == (1, (1,), (2,), ())
    world.fenced(2)
    world.fenced(1)
    assert trusted(world) == (-1, (), (2, 1), (1,))
    world.heartbeat(3)
    world.do_chores()
    assert world.partition.leader == -1, "3 lacks records"
    world.heartbeat(2)
    assert trusted(world) == (2, (2,), (1,), ())


def test_without_enough_replicas_all_of_them_are_enough() -> None:
    world = World(topic_defaults={MIN_IN_SYNC: "3"}).brokers(1, 2)
    set_level(world, 1)
    world.partition_of([1, 2])
    in_sync(world, 1)
    assert trusted(world) == (1, (1,), (2,), ())
    in_sync(world, 1, 2)
    assert trusted(world) == (1, (1, 2), (), ())


def test_where_all_of_few_replicas_are_in_sync_nobody_is_eligible_beside_them() -> None:
    assert eligible((2,), replicas=(1, 2), isr=(1, 2), minimum=3) == ()
    assert eligible((2,), replicas=(1, 2), isr=(1,), minimum=3) == (2,)


def test_who_leaves_the_replicas_and_the_isr_at_once_is_not_eligible() -> None:
    before = PartitionView((1, 2, 3), (1, 2, 3), 1, leader_epoch=1, partition_epoch=3)
    assert out_of_sync(before, replicas=(1, 2), isr=(1,), loser=NOBODY) == (2,)


def test_a_leader_is_told_by_which_number_its_isr_was_judged(world: World) -> None:
    """It may not have read the newest setting yet, and must not commit alone what an eligible replica lacks."""
    configure(world, TOPIC_RESOURCE, "t", "3")
    assert in_sync(world, 1, 2).min_in_sync == 3


# --- who loses it -----------------------------------------------------------------------------------------------------


def test_who_stopped_in_order_is_eligible_still(world: World) -> None:
    in_sync(world, 1)
    world.fenced(2)
    restart(world, 2, in_order=True)
    assert trusted(world) == (1, (1,), (2, 3), ())


def test_who_did_not_stop_in_order_is_eligible_no_more(world: World) -> None:
    in_sync(world, 1)
    world.fenced(2)
    restart(world, 2, in_order=False)
    assert trusted(world) == (1, (1,), (3,), ())


def test_a_member_that_did_not_stop_in_order_is_not_eligible(world: World) -> None:
    in_sync(world, 1, 2)
    restart(world, 2, in_order=False)
    assert trusted(world) == (1, (1,), (), ())


def test_who_comes_back_without_one_of_its_directories_did_not_stop_in_order(world: World) -> None:
    in_sync(world, 1)
    world.fenced(2)
    request = world.registration(2, 9, previous_broker_epoch=world.epoch(2), directories=[b"new!" * 4])
    world.now_ms += 60_000
    world.do(register_broker(world.state, request, world.next_offset, world.now_ms))
    assert world.partition.elr == (3,)


def test_a_directory_that_fails_takes_eligibility_with_it(world: World) -> None:
    in_sync(world, 1)
    world.heartbeat(2, offline_directories=[directory(2)])
    assert world.partition.elr == (3,)


def test_a_replica_that_is_made_anew_elsewhere_is_not_eligible(world: World) -> None:
    in_sync(world, 1)
    world.fenced(1)
    assert trusted(world) == (2, (2,), (3, 1), ())
    world.replay([])
    state = world.state
    broker = state.image.brokers[3]
    elsewhere = rpc.AssignReplicasToDirectoriesRequest.Directory(
        id=b"lost" * 4, topics=[rpc.AssignReplicasToDirectoriesRequest.Topic(topic_id=TOPIC_ID, partitions=[0])]
    )
    world.do(
        assign_replicas(
            state,
            rpc.AssignReplicasToDirectoriesRequest(broker_id=3, broker_epoch=broker.epoch, directories=[elsewhere]),
        )
    )
    assert world.partition.elr == (1,)


def test_who_reports_damage_is_not_eligible(world: World) -> None:
    in_sync(world, 1, 2)
    told = rpc.ReportDamageRequest.Partition(leader_epoch=world.partition.leader_epoch)
    topic = rpc.ReportDamageRequest.Topic(topic_id=TOPIC_ID, partitions=[told])
    world.do(
        report_damage(world.state, rpc.ReportDamageRequest(broker_id=2, broker_epoch=world.epoch(2), topics=[topic]))
    )
    assert trusted(world) == (1, (1,), (), ())


def test_who_has_no_room_is_eligible_for_it_has_what_was_acknowledged(world: World) -> None:
    in_sync(world, 1, 2)
    told = rpc.ReportDamageRequest.Partition(leader_epoch=world.partition.leader_epoch, is_full=True)
    topic = rpc.ReportDamageRequest.Topic(topic_id=TOPIC_ID, partitions=[told])
    world.do(
        report_damage(world.state, rpc.ReportDamageRequest(broker_id=2, broker_epoch=world.epoch(2), topics=[topic]))
    )
    leader, isr, elr, _ = trusted(world)
    assert (leader, isr) == (1, (1,))
    assert 2 in elr


def test_who_is_unregistered_is_not_eligible_though_it_was_fenced_long_ago(world: World) -> None:
    in_sync(world, 1)
    world.fenced(2)
    while not (decision := unregister_broker(world.state, rpc.UnregisterBrokerRequest(broker_id=2))).is_last:
        world.do(decision)
    world.do(decision)
    assert trusted(world) == (1, (1,), (3,), ())


# --- nobody is left that is trusted -----------------------------------------------------------------------------------


def all_lost(world: World) -> World:
    """1 led last; all lost power."""
    in_sync(world, 1, 2)
    world.fenced(2)
    world.fenced(1)
    world.fenced(3)
    restart(world, 2, in_order=False)
    return world


def test_who_led_last_leads_again_though_it_may_lack_something_for_nobody_has_more(world: World) -> None:
    all_lost(world)
    assert trusted(world) == (-1, (), (1,), (1,)), "1 may come back with everything"
    restart(world, 1, in_order=False)
    assert trusted(world) == (1, (1,), (), ())
    assert world.partition.leader_recovery_state == RECOVERING


def test_who_led_last_is_known_though_somebody_in_sync_was_left_who_could_not_lead() -> None:
    def after(before: PartitionView, loser: int) -> PartitionView:
        builder = PartitionChangeBuilder((TOPIC_ID, 0), before, lambda _: False, directory, min_in_sync=2)
        builder.isr = tuple(each for each in before.isr if each != loser)
        builder.loser = loser
        record = builder.build()
        assert record is not None
        return changed_partition(before, record.partition_change)

    first = after(PartitionView((1, 2, 3), (1, 3), 3, leader_epoch=1, partition_epoch=3), 3)
    assert (first.leader, first.isr, first.last_known_elr) == (-1, (1,), (3,))
    then = after(first, 1)
    assert (then.leader, then.isr, then.elr, then.last_known_elr) == (-1, (), (), (3,))


def test_who_led_last_leads_only_where_nobody_in_sync_or_eligible_is_left() -> None:
    """They may be away, and have what it lacks."""

    def leader(isr: tuple[int, ...], elr: tuple[int, ...]) -> int:
        before = PartitionView((1, 2, 3), isr, -1, leader_epoch=1, partition_epoch=3, elr=elr, last_known_elr=(3,))
        record = PartitionChangeBuilder((TOPIC_ID, 0), before, lambda each: each == 3, directory, min_in_sync=2).build()
        return -1 if record is None else changed_partition(before, record.partition_change).leader

    assert leader(isr=(1,), elr=()) == -1
    assert leader(isr=(), elr=(2,)) == -1
    assert leader(isr=(), elr=()) == 3


@pytest.mark.parametrize("replicas", [[1], [1, 2]], ids=["an only replica", "the last of two in sync"])
def test_the_last_in_sync_leads_again_though_nobody_led_when_the_level_was_raised(replicas: list[int]) -> None:
    """It was down by then, and did not stop in order: there was no leader any more who could be noted."""
    world = World().brokers(1, 2, 3).partition_of(replicas, isr=[1])
    world.fenced(1)
    set_level(world, 1)
    restart(world, 1, in_order=False)
    assert (trusted(world), world.partition.leader_recovery_state) == ((1, (1,), (), ()), RECOVERING)


def made_anew(world: World, broker_id: int) -> None:
    """Its disk was replaced: it makes the replica anew, and tells where."""
    elsewhere = b"new disk" * 2
    request = world.registration(broker_id, 9, directories=[elsewhere])
    world.now_ms += 60_000
    world.do(register_broker(world.state, request, world.next_offset, world.now_ms))
    world.heartbeat(broker_id)
    world.do_chores()
    topic = rpc.AssignReplicasToDirectoriesRequest.Topic(topic_id=TOPIC_ID, partitions=[0])
    place = rpc.AssignReplicasToDirectoriesRequest.Directory(id=elsewhere, topics=[topic])
    told = rpc.AssignReplicasToDirectoriesRequest(
        broker_id=broker_id, broker_epoch=world.epoch(broker_id), directories=[place]
    )
    world.do(assign_replicas(world.state, told))


def test_who_led_last_does_not_lead_with_an_empty_disk(world: World) -> None:
    """The others may lack something, but it lacks everything."""
    all_lost(world)
    made_anew(world, 1)
    assert trusted(world) == (-1, (), (), (1,)), "with a directory that is lost"
    world.configure("unclean.leader.election.enable", "true")
    world.do_chores()
    assert world.partition.leader == 2


def test_an_only_replica_leads_with_an_empty_disk() -> None:
    world = World(topic_defaults={MIN_IN_SYNC: "1"}).brokers(1)
    set_level(world, 1)
    world.partition_of([1])
    world.fenced(1)
    made_anew(world, 1)
    assert trusted(world) == (1, (1,), (), ())


def test_others_are_elected_where_any_replica_may_lead(world: World) -> None:
    all_lost(world)
    assert world.partition.leader == -1
    world.configure("unclean.leader.election.enable", "true")
    world.do_chores()
    assert (trusted(world), world.partition.leader_recovery_state) == ((2, (2,), (), ()), RECOVERING)


def test_and_where_it_is_asked_for(world: World) -> None:
    all_lost(world)
    topic = rpc.ElectLeadersRequest.Topic(name="t", partitions=[0])
    request = rpc.ElectLeadersRequest(election_type=1, topics=[topic])
    assert world.do(elect_leaders(world.state, request)).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert trusted(world) == (2, (2,), (), ())


def test_an_unclean_election_prefers_who_is_eligible(world: World) -> None:
    world.configure("unclean.leader.election.enable", "true")
    in_sync(world, 1, 3)
    in_sync(world, 1)
    world.fenced(1)
    assert (trusted(world)[0], world.partition.leader_recovery_state) == (3, RECOVERED)


# --- settings, reassignments, levels ----------------------------------------------------------------------------------


def test_another_minimum_makes_nobody_eligible_in_the_same_step(world: World) -> None:
    in_sync(world, 1)
    before = world.partition.partition_epoch
    assert configure(world, TOPIC_RESOURCE, "t", "1") == ErrorCode.NONE
    assert trusted(world) == (1, (1,), (), ())
    assert world.partition.partition_epoch == before + 1


def test_another_minimum_changes_nothing_where_nobody_leads_and_commits(world: World) -> None:
    in_sync(world, 1)
    world.fenced(3, 2, 1)
    before = trusted(world)
    assert configure(world, TOPIC_RESOURCE, "t", "1") == ErrorCode.NONE
    assert trusted(world) == before == (-1, (), (2, 3, 1), (1,))
    world.heartbeat(2)
    assert trusted(world) == (2, (2,), (), ()), "it commits alone from now on"


def test_who_led_last_is_known_though_the_minimum_changes(world: World) -> None:
    all_lost(world)
    world.configure("x", "y")
    configure(world, TOPIC_RESOURCE, "t", "1")
    assert world.partition.last_known_elr == (1,)


def test_another_minimum_of_all_brokers_too(world: World) -> None:
    in_sync(world, 1)
    assert configure(world, BROKER_RESOURCE, "", "1") == ErrorCode.NONE
    assert world.partition.elr == ()


def test_the_same_minimum_again_changes_nothing(world: World) -> None:
    in_sync(world, 1)
    assert configure(world, BROKER_RESOURCE, "", "2") == ErrorCode.NONE
    assert world.partition.elr == (2, 3)


def test_the_minimum_is_one_for_all_brokers(world: World) -> None:
    assert world.state.image.configs[BROKER_RESOURCE, ""][MIN_IN_SYNC] == "2", "as the controller's file has it"
    assert configure(world, BROKER_RESOURCE, "1", "1") == ErrorCode.INVALID_CONFIG
    assert configure(world, BROKER_RESOURCE, "", None) == ErrorCode.INVALID_CONFIG
    assert configure(world, TOPIC_RESOURCE, "t", "1") == ErrorCode.NONE
    assert configure(world, TOPIC_RESOURCE, "t", None) == ErrorCode.NONE


def test_what_single_brokers_had_goes_when_eligible_leaders_are_kept() -> None:
    world = World().brokers(1)
    assert configure(world, BROKER_RESOURCE, "1", "2") == ErrorCode.NONE
    set_level(world, 1)
    assert (BROKER_RESOURCE, "1") not in world.state.image.configs
    assert world.state.image.configs[BROKER_RESOURCE, ""] == {MIN_IN_SYNC: "1"}


def test_who_is_no_replica_any_more_is_not_eligible(world: World) -> None:
    in_sync(world, 1)
    body = rpc.AlterPartitionReassignmentsRequest.Partition(replicas=[1, 3])
    topic = rpc.AlterPartitionReassignmentsRequest.Topic(name="t", partitions=[body])
    request = rpc.AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=True)
    world.do(alter_partition_reassignments(world.state, request))
    in_sync(world, 1, 3)
    assert (world.partition.replicas, trusted(world)) == ((1, 3), (1, (1, 3), (), ()))


def test_without_the_level_the_last_in_sync_stays() -> None:
    world = World().brokers(1, 2, 3).partition_of([1, 2, 3])
    in_sync(world, 1)
    world.fenced(1)
    assert trusted(world) == (-1, (1,), (), ())


def test_a_downgrade_leaves_in_sync_whom_only_eligibility_knew(world: World) -> None:
    in_sync(world, 1)
    world.fenced(3, 2, 1)
    assert trusted(world)[:2] == (-1, ())
    known = world.partition.elr
    set_level(world, 0, SAFE_DOWNGRADE)
    assert trusted(world) == (-1, known, (), ())
    world.heartbeat(known[0])
    assert world.partition.leader == known[0]


def nobody_in_sync(world: World) -> tuple[int, ...]:
    """All are away, and the level is lowered; hands back who was eligible."""
    in_sync(world, 1)
    world.fenced(3, 2, 1)
    known = world.partition.elr
    assert len(known) == 3
    set_level(world, 0, SAFE_DOWNGRADE)
    return known


@pytest.mark.parametrize(
    ("isr", "elr", "last", "stays"),
    [((2,), (), (1,), (2,)), ((), (3,), (1,), (3,)), ((), (), (1,), (1,)), ((2,), (3,), (), (2,))],
)
def test_a_downgrade_leaves_in_sync_who_has_most(
    isr: tuple[int, ...], elr: tuple[int, ...], last: tuple[int, ...], stays: tuple[int, ...]
) -> None:
    """Of a partition that nobody leads: who is in sync before who is eligible, and that one before who led last."""
    world = World().brokers(1, 2, 3)
    set_level(world, 1)
    world.partition_of([1, 2, 3], isr, -1, elr=elr, last_known_elr=last)
    set_level(world, 0, SAFE_DOWNGRADE)
    assert trusted(world)[1:] == (stays, (), ())


def test_who_did_not_stop_in_order_does_not_lead_after_a_downgrade_either(world: World) -> None:
    emptied, *others = nobody_in_sync(world)
    restart(world, emptied, in_order=False)
    assert trusted(world)[:2] == (-1, tuple(others))
    restart(world, others[0], in_order=True)
    assert world.partition.leader == others[0]


def test_who_leads_after_a_downgrade_waits_for_nobody_who_is_away(world: World) -> None:
    first, second, _ = nobody_in_sync(world)
    world.heartbeat(second)
    assert trusted(world)[:2] == (second, (second,))
    world.heartbeat(first)
    assert in_sync(world, second, first).error_code == ErrorCode.NONE


def test_a_downgrade_clears_what_was_eligible_and_an_upgrade_begins_with_nobody(world: World) -> None:
    in_sync(world, 1)
    set_level(world, 0, SAFE_DOWNGRADE)
    assert trusted(world) == (1, (1,), (), ())
    set_level(world, 1)
    assert trusted(world) == (1, (1,), (), ())


def test_a_broker_that_cannot_read_it_holds_the_level_back() -> None:
    world = World()
    features = [each for each in world.registration(1).features if each.name != ELR_VERSION]
    world.register(1, features=features)
    with pytest.raises(KafkaError, match="broker 1 does not read level 1"):
        set_level(world, 1)
