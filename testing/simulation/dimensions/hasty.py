"""Leaders lose patience with followers sooner than the controller does: members leave the ISR and join it all the time."""

from collections.abc import Mapping

from ottla.testing.simulation.dimension import Dimension


class Hasty(Dimension):
    name = "hasty"
    one_in = 3
    settings: Mapping[str, str] = {"replica.lag.time.max.ms": "500"}


DIMENSION = Hasty
