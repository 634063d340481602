"""The controller's rules: who may be in sync, what is done when brokers go; and what leader and follower tell each other of it."""

from typing import Any

from ottla.broker.replication import partition
from ottla.broker.replication.decisions import high_watermark, isr
from ottla.broker.replication.decisions.isr import Proposal
from ottla.broker.replication.decisions.leader import PartitionLeader
from ottla.broker.replication.decisions.replica import BrokerStanding, ReplicaState
from ottla.quorum.controller.decisions import alter_partition, cluster
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.sweep import CHANGES_MAX, Step
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.planted.bug import PlantedBug
from ottla.testing.simulation.roles import CONTROLLER, third_of

HEALS = "when faults end, the cluster heals"
UNHEARD = tuple(
    Fault(400, "cut", way, 3_500)
    for way in ((third_of("flights", 0), CONTROLLER), (CONTROLLER, third_of("flights", 0)))
)
"""By the controller; leaders hear it."""
GONE = (Fault(500, "kill", ("node-1",), 2_000),)


def _takes_anybody(state: ControllerState, partition: PartitionView, member: Any) -> bool:
    return True


def _asks_no_controller(replica: ReplicaState, standing: BrokerStanding | None) -> bool:
    return standing is not None


def _takes_nobody_out(state: ControllerState, broker_id: int, changes_max: int = CHANGES_MAX) -> Step:
    return Step([], is_last=True)


def _takes_nobody_in(leader: PartitionLeader, broker_id: int) -> Proposal | None:
    return None


def _hears_nothing(current: int, leaders_high_watermark: int, log_end_offset: int) -> int:
    return current


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
        "fence who leads without another leader",
        "cluster.take_out: before a broker is fenced it leads nothing and is in no ISR",
        ((cluster, "take_out", _takes_nobody_out),),
        1,
        GONE,
        ("who is fenced is in nobody's way",),
    ),
    PlantedBug(
        "take nobody in again",
        "PartitionLeader.propose_expand: who has caught up joins",
        ((PartitionLeader, "propose_expand", _takes_nobody_in),),
        1,
        GONE,
        (HEALS,),
    ),
    PlantedBug(
        "tell followers of no commit",
        "follower_high_watermark: as far as the leader says, and its own log goes",
        ((partition, "follower_high_watermark", _hears_nothing),),
        1,
        GONE,
        (HEALS,),
    ),
)
