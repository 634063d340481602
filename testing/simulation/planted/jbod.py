"""Directories that die under their broker (KIP-858)."""

from msgspec import structs

from ottla.quorum.controller.decisions import cluster, directories
from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.partitions import change_builder
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.sweep import Step
from ottla.quorum.metadata.delta import PartitionKey
from ottla.quorum.metadata.views import BrokerView, PartitionView
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.dimensions.jbod import FAILS, IS_NEW
from ottla.testing.simulation.planted.bug import PlantedBug

FAILED = tuple(Fault(600 + 1_600 * number, FAILS, (f"node-{number}",), 1_000) for number in (1, 2, 3))
REPLACED = tuple(Fault(600 + 1_600 * number, IS_NEW, (f"node-{number}",), 150) for number in (1, 2, 3))


def _loses_nothing(state: ControllerState, broker_id: int, lost: tuple[bytes, ...]) -> Step:
    return Step([], is_last=True)


def _counts_what_is_empty(
    state: ControllerState, broker: BrokerView, directory: bytes, key: PartitionKey, partition: PartitionView
) -> Record | None:
    """Another directory: that is all."""
    moved = tuple(directory if each == broker.id else partition.directory_of(each) for each in partition.replicas)
    if moved == partition.directories:
        return None
    builder = change_builder(state, key, structs.replace(partition, directories=moved))
    record = builder.build() or Record()
    change = record.partition_change
    change.topic_id, change.partition_id = key
    if not change.HasField("directories"):
        change.directories.ids.extend(moved)
    return record


JBOD = (
    PlantedBug(
        "leave leaders in a directory that is gone",
        "lose_directories: who cannot read its replica leaves the ISR and the leadership",
        ((cluster, "lose_directories", _loses_nothing),),
        1,
        FAILED,
        ("who lost a directory is in nobody's way there",),
        ("jbod",),
    ),
    PlantedBug(
        "count a replica that was made anew",
        "directories._move: what was in a directory that is gone nobody may rely on",
        ((directories, "_move", _counts_what_is_empty),),
        1,
        REPLACED,
        (
            "every in-sync replica has what is committed",
            "a leader has every committed record",
            "who joins the ISR has what is committed",
        ),
        ("jbod",),
    ),
)
