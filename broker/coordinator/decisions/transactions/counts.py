"""What the transactions of a shard have come to since it was loaded, as metrics count it."""

from typing import NamedTuple


class TransactionCounts(NamedTuple):
    """Transactions that are complete, each where it was completed; and of those that were aborted, how many took too long."""

    commits: int = 0
    aborts: int = 0
    timeouts: int = 0

    def plus(self, other: "TransactionCounts") -> "TransactionCounts":
        return TransactionCounts(*(one + another for one, another in zip(self, other, strict=True)))
