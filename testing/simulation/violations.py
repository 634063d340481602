"""The first promise of a run that was broken. Nothing is raised inside a node, where the program might handle it: it is kept, and ends
the run."""

from collections.abc import Callable

UNSEEN = "nothing fails unseen"


class InvariantViolation(AssertionError):
    """``invariant`` is its name; the message tells the story."""

    def __init__(self, invariant: str, story: str) -> None:
        super().__init__(f"{invariant}: {story}")
        self.invariant = invariant
        self.story = story


class Violations:
    """``first`` is the first one."""

    def __init__(self) -> None:
        self.first: InvariantViolation | None = None
        self.told: list[Callable[[], None]] = []
        """Who wants to know of it."""
        self.measures = True
        """False: a history was lost against all that is asked of disks, so what was is no measure any more."""

    def add(self, invariant: str, story: str) -> None:
        """Keeps it if it is the first."""
        if self.first is None and (self.measures or invariant == UNSEEN):
            self.first = InvariantViolation(invariant, story)
            for callback in self.told:
                callback()
