"""Limits that only large clusters meet, lowered: what is done for many partitions is done in pieces of two or three.

The controller fences a broker and brings it back piece by piece, brokers take on new partitions turn by turn, and in between
partitions change, come and go. And limits that only large batches meet: a start reads logs in pieces that hold less than one.
"""

from typing import Any

from ottla.broker.replication import hosting, replica_manager
from ottla.log import recovery
from ottla.log.segments import walk
from ottla.quorum.controller import controller, upkeep
from ottla.quorum.controller.decisions.sweep import Change, Step, Sweep
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.workload import SMALL_SEGMENTS

MANY, PARTITIONS = "many", 9
CHANGES_MAX = 2
PAUSE_MS = 15  # computing takes no time in the simulation
TURN_COST = hosting.CREATION_COST + 2 * hosting.ROLE_COST
READ_BYTES = 64
_STEP = Sweep.step


def _small_step(sweep: Sweep, change: Change, changes_max: int) -> Step:
    return _STEP(sweep, change, min(changes_max, CHANGES_MAX))


class Sweeps(Dimension):
    name = "sweeps"
    one_in = 6
    limits: tuple[tuple[Any, str, Any], ...] = (
        (Sweep, "step", _small_step),
        (controller, "PIECE_PAUSE_MS", PAUSE_MS),
        (upkeep, "PIECE_PAUSE_MS", PAUSE_MS),
        (hosting, "TURN_COST", TURN_COST),
        (replica_manager, "TURN_COST", TURN_COST),
        (recovery, "_PIECE_BYTES", READ_BYTES),
        (walk, "PIECE_BYTES", READ_BYTES),
    )

    async def prepare(self) -> None:
        await self.run.create_topic(MANY, PARTITIONS, **SMALL_SEGMENTS)


DIMENSION = Sweeps
