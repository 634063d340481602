"""What happens again and again is told seldom: the 1st, 2nd, 4th, 8th time, so that no client and no disk fills the log."""

import logging


def is_told(count: int) -> bool:
    """Whether the ``count``-th time (1: the first) is one of those."""
    return count & (count - 1) == 0


class Seldom:
    """One thing that happens; counts how often."""

    __slots__ = ("_logger", "count")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.count = 0

    def is_due(self) -> bool:
        """Counts one more, and says whether it is to be told."""
        self.count += 1
        return is_told(self.count)

    def warn(self, message: str, *arguments: object) -> None:
        """A warning with the count, when one is due."""
        if self.is_due():
            times = f" ({self.count} times so far)" if self.count > 1 else ""
            self._logger.warning(message + "%s", *arguments, times)

    def forget(self) -> None:
        """All is well again: the next time is a first one."""
        self.count = 0
