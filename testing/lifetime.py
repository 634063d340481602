"""What is started and ended by ``with``."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Lifetime(ABC):
    """Ends what it began, also where that came to be half only."""

    @abstractmethod
    def _begin(self) -> None:
        """Returns when it can be used."""

    @abstractmethod
    def close(self) -> None:
        """Ends whatever there is of it by now."""

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
