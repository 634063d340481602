"""Bugs to plant, and the runs that catch them: the proof that the simulation can fail.

Each takes one rule away. The runs are short lists of faults of their own, not drawn from the seed, so that they still catch
their bug when the drawing or the timing of the servers changes.
"""

from ottla.testing.simulation.planted.bug import PlantedBug, planted
from ottla.testing.simulation.planted.control import CONTROL
from ottla.testing.simulation.planted.disks import DISKS
from ottla.testing.simulation.planted.elections import ELECTIONS
from ottla.testing.simulation.planted.first import FIRST
from ottla.testing.simulation.planted.groups import GROUP_BUGS
from ottla.testing.simulation.planted.jbod import JBOD
from ottla.testing.simulation.planted.large import LARGE
from ottla.testing.simulation.planted.logs import LOGS
from ottla.testing.simulation.planted.members import MEMBER_BUGS
from ottla.testing.simulation.planted.membership import MEMBERSHIP
from ottla.testing.simulation.planted.moves import MOVES
from ottla.testing.simulation.planted.names import NAMES
from ottla.testing.simulation.planted.near import NEAR
from ottla.testing.simulation.planted.older import OLDER
from ottla.testing.simulation.planted.own import OWNS
from ottla.testing.simulation.planted.power import POWER
from ottla.testing.simulation.planted.transactions import TRANSACTION_BUGS
from ottla.testing.simulation.planted.views import VIEWS

__all__ = ["BUGS", "PlantedBug", "planted"]

REPLICATION = (*NEAR, *POWER, *ELECTIONS, *JBOD, *CONTROL, *LARGE, *OLDER)
COORDINATORS = (*GROUP_BUGS, *TRANSACTION_BUGS, *MEMBER_BUGS)
BUGS = (*FIRST, *MEMBERSHIP, *LOGS, *NAMES, *VIEWS, *DISKS, *OWNS, *MOVES, *REPLICATION, *COORDINATORS)
