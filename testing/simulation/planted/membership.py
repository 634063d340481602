"""Who counts, who joins and who leads."""

from typing import Any

from ottla.broker.replication.decisions import high_watermark, isr, leader
from ottla.broker.replication.decisions.isr import Committed, PendingExpand, PendingShrink, may_join
from ottla.broker.replication.decisions.leader import PartitionLeader
from ottla.broker.replication.decisions.replica import BrokerStanding, ReplicaState
from ottla.quorum.controller.decisions import alter_partition
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.sweep import Sweep
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.planted.bug import PlantedBug, cut_between, slow

_FETCHED = ReplicaState.fetched
_LEAD = PartitionLeader.lead
JOINS = "who joins the ISR has what is committed"
IN_SYNC = "every in-sync replica has what is committed"


def _joins_anywhere(
    replica: ReplicaState, standing: BrokerStanding | None, high_watermark: int, epoch_start: int
) -> bool:
    return may_join(replica, standing, high_watermark, 0)


def _only_rises(replica: ReplicaState, offset: int, leader_end_offset: int, now_ms: int) -> None:
    before = replica.log_end_offset
    _FETCHED(replica, offset, leader_end_offset, now_ms)
    replica.log_end_offset = max(before, replica.log_end_offset)


def _is_eligible_in_any_life(replica: ReplicaState, standing: BrokerStanding | None) -> bool:
    return standing is not None and not standing.fenced and not standing.shutting_down


def _may_be_member_in_any_life(state: ControllerState, partition: Any, member: Any) -> bool:
    broker = state.image.brokers.get(member.broker_id)
    return broker is not None and broker.is_active


def _no_newer_life(partition_leader: PartitionLeader, broker_id: int, broker_epoch: int) -> bool:
    return False


def _forgets_changes(sweep: Sweep, key: Any, after: Any) -> bool:
    return True


def _forgets_its_proposal(partition_leader: PartitionLeader, *, isr: tuple[int, ...], **known: Any) -> bool:
    new_epoch = _LEAD(partition_leader, isr=isr, **known)
    partition_leader._set_isr(Committed(isr))
    return new_epoch


def _unclean(state: ControllerState, topic_id: bytes) -> bool:
    return True


MEMBERSHIP = (
    PlantedBug(
        "do not count who is on its way in",
        "PendingExpand.maximal: a proposed member holds the high watermark back",
        ((PendingExpand, "maximal", property(lambda state: state.committed)),),
        1,
        (
            slow(1590, 2, 3, 1250, 1300, 4500),
            *(
                Fault(begin_ms, "pause", ("node-4",), duration_ms)
                for begin_ms, duration_ms in ((700, 900), (1625, 1200))
            ),
        ),
        (IN_SYNC, JOINS),
        ("hasty", "plain"),
    ),
    PlantedBug(
        "join below the epoch's start",
        "may_join: a member has all that the leader had when its epoch began",
        ((leader, "may_join", _joins_anywhere),),
        8,
        (
            *cut_between(500, 3, 1, 2800),
            slow(400, 3, 2, 200, 250, 1000),
            Fault(1300, "kill", ("node-3",), 4000),
            slow(1500, 2, 1, 100, 150, 2000),
        ),
        (JOINS,),
        ("hasty",),
    ),
    PlantedBug(
        "believe that a follower's end only rises",
        "ReplicaState.fetched: a follower has what is below its fetch offset, and no more",
        ((ReplicaState, "fetched", _only_rises),),
        3,
        (
            slow(900, 3, 1, 60, 100, 5000),
            *(
                fault
                for begin_ms in (1040, 2540, 4040)
                for fault in (
                    Fault(begin_ms, "crash", ("node-1",), 200),
                    Fault(begin_ms + 1, "isolate", ("harness",), 1000),
                )
            ),
        ),
        (JOINS, IN_SYNC),
        ("pipelines",),
    ),
    PlantedBug(
        "check no broker epochs",
        "a fetch from an earlier life of a broker proves nothing (is_eligible, knows_newer_life_of, AlterPartition)",
        (
            (isr, "is_eligible", _is_eligible_in_any_life),
            (high_watermark, "is_eligible", _is_eligible_in_any_life),
            (PartitionLeader, "knows_newer_life_of", _no_newer_life),
            (alter_partition, "_is_eligible", _may_be_member_in_any_life),
        ),
        40,
        (
            *(
                Fault(960 + 1900 * number + after_ms, kind, args, duration_ms)
                for number in range(2)
                for after_ms, kind, args, duration_ms in (
                    (0, "slow-link", ("node-1", "node-3", 400.0, 500.0), 1500),
                    (200, "crash", ("node-1",), 100),
                    (201, "isolate", ("harness",), 1300),
                )
            ),
        ),
        (JOINS, IN_SYNC),
        ("pipelines",),
    ),
    PlantedBug(
        "a sweep that forgets what changes under it",
        "Sweep.changed: a partition that changes behind the sweep is looked at again",
        ((Sweep, "changed", _forgets_changes),),
        1,
        tuple(Fault(400 + 1900 * number, "kill", (f"node-{1 + number % 3}",), 1300) for number in range(3)),
        ("who is fenced is in nobody's way",),
        ("sweeps", "topics", "names"),
    ),
    PlantedBug(
        "shrink the ISR before the controller agrees",
        "PendingShrink.maximal: until then each member may be elected",
        ((PendingShrink, "maximal", property(lambda state: state.proposed)),),
        1,
        (slow(200, 3, 2, 200, 300, 3000), Fault(500, "pause", ("node-1",), 1200)),
        (IN_SYNC,),
        ("hasty", "pipelines"),
    ),
    PlantedBug(
        "forget a proposal when metadata comes late",
        "PartitionLeader.lead: what an answer told before is no news",
        ((PartitionLeader, "lead", _forgets_its_proposal),),
        1,
        (slow(200, 3, 2, 300, 450, 5500),),
        (JOINS, IN_SYNC),
        ("hasty", "pipelines"),
    ),
    PlantedBug(
        "elect whoever is there",
        "allows_unclean_election: only where the topic says so",
        ((ControllerState, "allows_unclean_election", _unclean),),
        1,
        (
            Fault(500, "pause", ("node-3",), 900),
            Fault(1390, "kill", ("node-2",), 4500),
            Fault(1390, "kill", ("node-1",), 200),
        ),
        ("a leader has every committed record", JOINS),
        ("hasty",),
    ),
)
