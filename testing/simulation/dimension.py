"""What a run may have besides the cluster, its weather and the producers of `flights`: one thing more that can happen.

Each is a module of `ottla.testing.simulation.dimensions` with a class that is its ``DIMENSION``. A seed draws for each, from
a generator of that dimension's own, whether it has it: to add one, or to change what one draws, leaves the others as they are.
"""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.runtime.simulation.faults import Fault
from ottla.testing.simulation.length import USUAL, Length
from ottla.testing.simulation.plan import FaultKind

if TYPE_CHECKING:
    from ottla.testing.simulation.course import Run


def beside(rng: Random) -> Random:
    """A generator of its own for what a dimension came to draw later: all else is drawn as it was."""
    copy = Random()
    copy.setstate(rng.getstate())
    return Random(copy.getrandbits(64))  # of the copy itself the first draws would be those that ``rng`` gives next


class Dimension:
    """The methods are called in the order in which they stand here; each does nothing unless it is overridden.

    Whatever a dimension breaks, it breaks on topics of its own, which it creates in `prepare`: others may be in the same run.
    """

    name: ClassVar[str]
    one_in: ClassVar[int] = 4
    """One seed of so many has it."""
    in_brief: ClassVar[bool] = False
    """Whether brief runs may have it."""
    settings: Mapping[str, str] = {}
    """For every node, Kafka's names, on top of `cluster.SETTINGS`."""
    topic_settings: Mapping[str, str] = {}
    """For `flights`, on top of its own."""
    plain_brokers: int = 0
    """Brokers that are no controllers, besides the three nodes that are."""
    directories: Sequence[str] = ()
    """Log directories of every node, besides the first."""
    calm: bool = False
    """Whether the run goes without the faults that every seed has otherwise: they would miss the moments that its own are made for."""
    least_ms: int = 0
    """How long the users act, though the faults may be over sooner."""
    heal_s: float = 20.0
    """Virtual seconds that what it broke may take to be whole again."""
    limits: Sequence[tuple[Any, str, Any]] = ()
    """Limits of the program that are lower in this run, so that it meets them: (module or class, name, value)."""

    length: Length = USUAL
    """Of the run."""
    run: "Run"
    """Set before `kinds` is called."""

    def __init__(self, rng: Random) -> None:
        """Whatever the dimension draws, it draws from ``rng``, which is its own and depends on the seed alone."""
        self.rng = rng

    def settings_of(self, number: int) -> Mapping[str, str]:
        """For one node, on top of `settings`."""
        return {}

    def faults(self, nodes: Sequence[str], until_ms: int) -> Iterable[Fault]:
        """Faults besides the seed's, all over by ``until_ms``. They are data: what they say must do for a replay."""
        return ()

    def kinds(self) -> Mapping[str, FaultKind]:
        """Kinds of faults of its own, by names that no other dimension has for another."""
        return {}

    async def prepare(self) -> None:
        """The cluster is up and nothing has happened yet: create topics (`run.create_topic`), add producers (`run.produce`)."""

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Who acts while the faults happen, and until everything is read back. Whatever one raises ends the run."""
        return ()

    def missing(self) -> str:
        """What has not healed yet, after the faults; "" when all has. Asked again and again, once every replica is in sync."""
        return ""

    def progress(self) -> Mapping[str, int]:
        """Counts that must all grow once the cluster has healed: else a user is stuck."""
        return {}

    async def check(self) -> None:
        """The users are gone, followers know what is committed. Raises BrokenPromise, or InvariantViolation."""

    async def epilogue(self) -> None:
        """Everything was checked, and nobody else comes: here the run itself may be broken. Raises as `check` does."""

    def counts(self) -> Mapping[str, int]:
        """What came of it, so that a test can demand that it came to something."""
        return {}
