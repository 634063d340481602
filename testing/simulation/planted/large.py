"""Requests that are read beside the loop."""

from ottla.broker.network import connection
from ottla.broker.network.reading import BOUND, MUTED
from ottla.testing.simulation.groups import STAYS
from ottla.testing.simulation.planted.bug import PlantedBug

LARGE = (
    PlantedBug(
        "take requests while one before them is read",
        "reading.BESIDE: what stands behind a large request on its connection waits for it",
        ((connection, "HELD", BOUND | MUTED),),
        1,
        (),
        (STAYS,),
        ("large",),
    ),
)
