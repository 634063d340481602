"""Who is elected, cleanly or not, and what is kept of that (KIP-966)."""

from collections.abc import Callable
from typing import Any

from ottla.broker.replication.decisions import leader
from ottla.broker.replication.decisions.high_watermark import leader_high_watermark
from ottla.broker.replication.following.truncating import OnCut, Truncations
from ottla.log.log import Log
from ottla.quorum.controller.decisions import partition_change
from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.partition_change import Election, PartitionChangeBuilder
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.views import RECOVERING
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.dimensions.unclean import COMES, WAGERS
from ottla.testing.simulation.planted.bug import PlantedBug, cut_between
from ottla.testing.simulation.roles import follower_of, leader_of

_BUILD, _IS_VALID, _CUT = PartitionChangeBuilder.build, PartitionChangeBuilder._is_valid, Truncations.cut
HEALS = "when faults end, the cluster heals"
EQUAL = "replicas are equal up to the high watermark"
IN_SYNC = "every in-sync replica has what is committed"
HAS_ALL = "a leader has every committed record"
JOINS = "who joins the ISR has what is committed"
WAGERED = (
    Fault(300, "isolate", (follower_of(WAGERS, 0),), 2_200),
    Fault(2_490, "kill", (leader_of(WAGERS, 0),), 2_500),
)
ONE_LEFT = (Fault(500, "kill", ("node-4",), 2_500), Fault(900, "isolate", ("node-1",), 4_000))
"""Of a partition of these two; both were in sync, and one runs on and is eligible."""
OUT_OF_SYNC = (Fault(300, "kill", ("node-1",), 300), *cut_between(900, 1, 2, 4_800))
"""And in service, and the first replica of what it has led."""
ALL_GONE = tuple(Fault(800 + 25 * number, "kill", (f"node-{number}",), 1_500) for number in (1, 2, 3))


def _allows_none(state: ControllerState, topic_id: bytes) -> bool:
    return False


def _never_recovers(builder: PartitionChangeBuilder) -> Record | None:
    if builder._before.leader_recovery_state == RECOVERING:
        builder.leader_recovery_state = RECOVERING
    return _BUILD(builder)


def _keeps_what_was_committed(
    truncations: Truncations, log: Log, offset: int, is_wanted: Callable[[], bool], on_done: OnCut
) -> None:
    _CUT(truncations, log, max(offset, log.high_watermark), is_wanted, on_done)


def _takes_the_first_where_any_may(builder: PartitionChangeBuilder, broker_id: int) -> bool:
    if builder._election is Election.UNCLEAN:
        return broker_id in builder.replicas and builder._can_lead(broker_id)
    return _IS_VALID(builder, broker_id)


def _takes_the_first_where_it_is_preferred(builder: PartitionChangeBuilder, broker_id: int) -> bool:
    if builder._election is Election.PREFERRED:
        return broker_id in builder.replicas and builder._can_lead(broker_id)
    return _IS_VALID(builder, broker_id)


def _keeps_all_eligible(
    candidates: tuple[int, ...], replicas: tuple[int, ...], isr: tuple[int, ...], minimum: int
) -> tuple[int, ...]:
    return candidates


def _commits_alone(*offsets: int, **known: Any) -> int:
    return leader_high_watermark(*offsets, **{**known, "required_in_sync": 1})


def _knows_nobody_who_led(
    before: Any, replicas: tuple[int, ...], known: tuple[int, ...], leader: int
) -> tuple[int, ...]:
    return ()


ELECTIONS = (
    PlantedBug(
        "elect nobody where anybody may lead",
        "allows_unclean_election: where the topic says so",
        ((ControllerState, "allows_unclean_election", _allows_none),),
        1,
        WAGERED,
        (COMES,),
        ("unclean",),
    ),
    PlantedBug(
        "recover for ever",
        "alter_partition: who leads says when it has recovered from an unclean election",
        ((PartitionChangeBuilder, "build", _never_recovers),),
        1,
        WAGERED,
        (HEALS,),
        ("unclean",),
    ),
    PlantedBug(
        "keep what an unclean election lost",
        "truncation_offset: the high watermark is no limit",
        ((Truncations, "cut", _keeps_what_was_committed),),
        1,
        WAGERED,
        (EQUAL, HEALS),
        ("unclean",),
    ),
    PlantedBug(
        "elect the first replica where any may lead",
        "PartitionChangeBuilder._elect: uncleanly only where nobody is in sync",
        ((PartitionChangeBuilder, "_is_valid", _takes_the_first_where_any_may),),
        1,
        WAGERED,
        (HAS_ALL, JOINS),
        ("unclean",),
    ),
    PlantedBug(
        "elect who is preferred though it is not in sync",
        "PartitionChangeBuilder._is_valid: whoever leads is in sync",
        ((PartitionChangeBuilder, "_is_valid", _takes_the_first_where_it_is_preferred),),
        1,
        OUT_OF_SYNC,
        (HAS_ALL, JOINS),
        ("hasty", "moves"),
    ),
    PlantedBug(
        "keep who is eligible when enough are in sync again",
        "elr.eligible: only while nothing can be committed without them",
        ((partition_change, "eligible", _keeps_all_eligible),),
        1,
        ONE_LEFT,
        (IN_SYNC,),
        ("eligible", "hasty", "plain"),
    ),
    PlantedBug(
        "commit alone what two must have",
        "leader_high_watermark: not with fewer in sync than min.insync.replicas",
        ((leader, "leader_high_watermark", _commits_alone),),
        1,
        ONE_LEFT,
        (IN_SYNC, HAS_ALL),
        ("eligible", "hasty", "plain"),
    ),
    PlantedBug(
        "forget who led last",
        "elr.last_known: where nobody is eligible, who led last may lead",
        ((partition_change, "last_known", _knows_nobody_who_led),),
        1,
        ALL_GONE,
        (HEALS,),
        ("eligible",),
    ),
)
