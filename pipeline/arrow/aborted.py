"""Which batches belong to aborted transactions, by what a broker's Fetch, or a segment's index, says of them."""

from collections.abc import Callable, Iterable

import numpy as np

from ottla.pipeline.arrow.batches import CONTROL, TRANSACTIONAL, Headers
from ottla.pipeline.arrow.records import Mask

MarkerReader = Callable[[int], bool]
"""Whether the control batch of this index ends an aborted transaction."""

_FOREVER = 2**63 - 1


class AbortedTransactions:
    """A producer's batches are aborted from a transaction's first offset on, until its marker, or its last offset where it is known.

    One belongs to one answer, or one log, read in order: what it has passed it forgets.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """``transactions``: the producer id and first offset of each, as Fetch lists them."""
        self._waiting = sorted(((first, _FOREVER, producer) for producer, first in transactions), reverse=True)
        self._open: dict[int, int] = {}

    @classmethod
    def of_index(cls, entries: Iterable[tuple[int, int, int]]) -> "AbortedTransactions":
        """Of the producer id, first and last offset of each, as ``.txnindex`` files list them."""
        made = cls(())
        made._waiting = sorted(((first, last, producer) for producer, first, last in entries), reverse=True)
        return made

    def of_batches(self, headers: Headers, is_abort: MarkerReader) -> Mask:
        """Which of the batches, that come in order, are aborted. Goes past them."""
        aborted = np.zeros(len(headers), np.bool_)
        if not len(headers) or not (self._waiting or self._open):
            return aborted
        transactional = np.flatnonzero(headers["attributes"] & TRANSACTIONAL)
        some = headers[transactional]
        bases = some["base_offset"].astype(np.int64)
        for index, base, last, producer, attributes in zip(
            transactional.tolist(),
            bases.tolist(),
            (bases + some["last_offset_delta"]).tolist(),
            some["producer_id"].tolist(),
            some["attributes"].tolist(),
            strict=True,
        ):
            while self._waiting and self._waiting[-1][0] <= last:
                _, until, owner = self._waiting.pop()
                self._open[owner] = until
            if producer in self._open:
                if base > self._open[producer] or (attributes & CONTROL and is_abort(index)):
                    del self._open[producer]
                elif not attributes & CONTROL:
                    aborted[index] = True
        return aborted
