"""Directories that die under their broker (KIP-858)."""

from ottla.quorum.controller.decisions import cluster
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.sweep import Step
from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.dimensions.jbod import FAILS
from ottla.testing.simulation.planted.bug import PlantedBug

FAILED = tuple(Fault(600 + 1_600 * number, FAILS, (f"node-{number}",), 1_000) for number in (1, 2, 3))


def _loses_nothing(state: ControllerState, broker_id: int, lost: tuple[bytes, ...]) -> Step:
    return Step([], is_last=True)


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
)
