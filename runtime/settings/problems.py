"""What is wrong with settings, gathered: a person hears all of it at once, not one line a start."""

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from ottla.runtime.settings.definitions import SettingError

P = ParamSpec("P")
R = TypeVar("R")


class Problems:
    """The lines, and the settings whose value nothing more can be said about."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.lines = list(lines)
        self._unreadable: set[str] = set()

    def read(self, name: str, parse: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        """What ``parse`` makes of a setting; None, and a line, where it cannot."""
        try:
            return parse(*args, **kwargs)
        except SettingError as error:
            self.lines.extend(str(error).splitlines())
            self._unreadable.add(name)
            return None

    def contradicts(self, line: str, *names: str) -> None:
        """A line about settings that each could be read; nothing where one could not, which has a line of its own."""
        if self._unreadable.isdisjoint(names):
            self.lines.append(line)

    def refuse(self) -> None:
        """Raises SettingError when there is a line."""
        if self.lines:
            raise SettingError("\n".join(self.lines))
