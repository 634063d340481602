"""Which query's batch a task writes, and which of the task's attempts it is."""

import re
from typing import NamedTuple

_UNSAFE = re.compile(r"[^A-Za-z0-9]")


class Attempt(NamedTuple):
    """Without a query nobody will ask whether the batch came before."""

    query: str
    batch: int
    task: int
    number: int
    """No other attempt of the same Spark application has it."""

    @property
    def prefix(self) -> str:
        """Of its files' names, so that a person can tell whose they are."""
        query = _UNSAFE.sub("", self.query)[:16] or "write"
        return f"part-{query}-{self.batch:08d}-{self.task:05d}-{self.number}"
