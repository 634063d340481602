"""The controller's rules: who may be in sync, whose word counts, what is kept when brokers go."""

from typing import Any

from ottla.broker.replication.decisions import high_watermark, isr
from ottla.broker.replication.decisions.replica import BrokerStanding, ReplicaState
from ottla.broker.replication.decisions.throttle import ReplicationThrottle
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions import alter_partition, reassignments
from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.partition_change import PartitionChangeBuilder
from ottla.quorum.controller.decisions.partitions import change_builder
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.planted.bug import PlantedBug
from ottla.testing.simulation.roles import CONTROLLER, third_of

_PUT_LISTS = PartitionChangeBuilder._put_lists
HEALS = "when faults end, the cluster heals"
JOINS = "who joins the ISR has what is committed"
IN_SYNC = "every in-sync replica has what is committed"
HAS_ALL = "a leader has every committed record"
UNHEARD = tuple(
    Fault(400, "cut", way, 3_500)
    for way in ((third_of("flights", 0), CONTROLLER), (CONTROLLER, third_of("flights", 0)))
)
"""By the controller; leaders hear it."""
LATE = (
    Fault(300, "pause", ("node-1",), 1_000),
    Fault(1_200, "slow-link", ("node-2", "node-3", 1_500.0, 1_600.0), 4_000),
    Fault(1_300, "pause", ("node-1",), 1_500),
    Fault(2_500, "kill", ("node-2",), 300),
)
ONE_BY_ONE = (
    Fault(800, "kill", ("node-1",), 2_000),
    Fault(830, "kill", ("node-2",), 400),
    Fault(1_500, "kill", ("node-3",), 400),
)


def _takes_anybody(state: ControllerState, partition: PartitionView, member: Any) -> bool:
    return True


def _asks_no_controller(replica: ReplicaState, standing: BrokerStanding | None) -> bool:
    return standing is not None


def _believes_whoever_led(
    state: ControllerState, sender: int, partition: PartitionView, asked: Any
) -> ErrorCode | None:
    members = [member.broker_id for member in asked.new_isr]
    return None if members and all(each in partition.replicas for each in members) else ErrorCode.INVALID_REQUEST


def _leaves_nobody_in_sync(builder: PartitionChangeBuilder, change: pb.PartitionChange) -> None:
    _PUT_LISTS(builder, change)
    if not builder.isr and builder._before.isr:
        change.isr.SetInParent()


def _counts_who_is_coming(
    state: ControllerState, key: PartitionKey, partition: PartitionView, target: tuple[int, ...]
) -> Record | None:
    builder = change_builder(state, key, partition)
    removing = tuple(sorted(each for each in partition.replicas if each not in target))
    coming = tuple(each for each in target if each not in partition.replicas and state.is_active(each))
    builder.adding, builder.removing, builder.replicas = coming, removing, (*target, *removing)
    builder.isr = (*partition.isr, *coming)
    return builder.build()


def _forgets_no_byte(throttle: ReplicationThrottle, now_ms: int) -> None:
    throttle._at_ms = now_ms


CONTROL = (
    PlantedBug(
        "take into the ISR who is fenced",
        "AlterPartition and is_eligible: a member is in service",
        (
            (alter_partition, "_is_eligible", _takes_anybody),
            (isr, "is_eligible", _asks_no_controller),
            (high_watermark, "is_eligible", _asks_no_controller),
        ),
        1,
        UNHEARD,
        ("who joins the ISR is in service",),
        ("hasty",),
    ),
    PlantedBug(
        "believe who led before",
        "alter_partition._refusal: only who leads, of the epochs of now",
        ((alter_partition, "_refusal", _believes_whoever_led),),
        1,
        LATE,
        (JOINS, HAS_ALL, IN_SYNC, "who joins the ISR is in service"),
        ("hasty", "pipelines"),
    ),
    PlantedBug(
        "leave nobody in sync",
        "PartitionChangeBuilder._put_lists: the last member stays, where nobody is kept as eligible",
        ((PartitionChangeBuilder, "_put_lists", _leaves_nobody_in_sync),),
        1,
        ONE_BY_ONE,
        (HEALS,),
    ),
    PlantedBug(
        "count who is coming as in sync",
        "reassignments._begin: a new replica is in sync when it has what is committed",
        ((reassignments, "_begin", _counts_who_is_coming),),
        1,
        (),
        (JOINS, IN_SYNC),
        ("moves",),
    ),
    PlantedBug(
        "hold back for ever",
        "ReplicationThrottle: what went counts for less as time passes",
        ((ReplicationThrottle, "_pass", _forgets_no_byte),),
        1,
        (),
        (HEALS,),
        ("moves",),
    ),
)
