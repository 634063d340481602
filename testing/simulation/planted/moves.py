"""Partitions whose replicas move."""

from ottla.quorum.controller.decisions import reassignments
from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.partition_change import PartitionChangeBuilder
from ottla.quorum.controller.decisions.partitions import change_builder
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import PartitionView
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.dimensions.moves import ENDS, SHAPE
from ottla.testing.simulation.planted.bug import PlantedBug

AWAY = (Fault(200, "kill", ("node-4",), 5800),)
"""Who moves there waits for it."""


def _ends_at_once(builder: PartitionChangeBuilder) -> None:
    """Somebody who stays is in sync: that will do."""
    target = tuple(each for each in builder.replicas if each not in builder.removing)
    staying = tuple(each for each in builder.isr if each not in builder.removing)
    if staying and (builder.adding or builder.removing):
        builder.replicas, builder.isr, builder.adding, builder.removing = target, staying, (), ()


def _forgets_who_was_coming(
    state: ControllerState, key: PartitionKey, partition: PartitionView, target: tuple[int, ...]
) -> Record | None:
    """Another target: what is a replica counts as there, though it has just begun to come."""
    builder = change_builder(state, key, partition)
    builder.removing = tuple(sorted(each for each in partition.replicas if each not in target))
    builder.adding = tuple(sorted(each for each in target if each not in partition.replicas))
    builder.replicas = (*target, *builder.removing)
    return builder.build()


def _keeps_who_was_given_up(state: ControllerState, key: PartitionKey, partition: PartitionView) -> Record | None:
    builder = change_builder(state, key, partition)
    builder.replicas = tuple(each for each in partition.replicas if each not in partition.adding)
    builder.adding, builder.removing = (), ()
    return builder.build()


MOVES = (
    PlantedBug(
        "end a move when anybody is in sync",
        "PartitionChangeBuilder._complete_reassignment: all new replicas are in sync",
        ((PartitionChangeBuilder, "_complete_reassignment", _ends_at_once),),
        1,
        AWAY,
        (ENDS, "a leader has every committed record"),
        ("moves",),
    ),
    PlantedBug(
        "forget who was coming when another target is given",
        "reassignments._begin: a replica that is being added is new, whatever the target",
        ((reassignments, "_begin", _forgets_who_was_coming),),
        2,
        AWAY,
        (ENDS,),
        ("moves",),
    ),
    PlantedBug(
        "keep those in sync that are given up",
        "reassignments._cancel: the new replicas leave the ISR",
        ((reassignments, "_cancel", _keeps_who_was_given_up),),
        8,
        AWAY,
        (SHAPE,),
        ("moves",),
    ),
)
