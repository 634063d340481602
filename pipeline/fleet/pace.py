"""So many records a second: how long to wait before the next ones. The clock is the caller's."""


class Pace:
    """Evenly from the first records on. Who was held up catches up for at most a second, so a pause makes no flood."""

    def __init__(self, records_a_second: float | None) -> None:
        self._rate = records_a_second
        self._due_s: float | None = None

    @property
    def at_once(self) -> int | None:
        """How many records to send together, so that they leave ten times a second; None: as many as one likes."""
        return None if self._rate is None else max(1, int(self._rate / 10))

    def wait_s(self, records: int, now_s: float) -> float:
        """How long to wait before so many records are sent."""
        if self._rate is None:
            return 0.0
        due_s = now_s if self._due_s is None else max(self._due_s, now_s - 1)
        self._due_s = due_s + records / self._rate
        return max(0.0, due_s - now_s)
