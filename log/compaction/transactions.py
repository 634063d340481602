"""Which batches belong to aborted transactions, and which end markers have nothing left to end.

Fed with the batches of a log in order, once for the map and once for the rewriting. Kafka's CleanedTransactionMetadata.
"""

from collections.abc import Iterable

from ottla.log.batch import TRANSACTIONAL, BatchHeader
from ottla.log.segments.transactions import AbortedTransaction


class TransactionTracker:
    """Tells of each batch whether its transaction was aborted.

    ``aborted`` holds every aborted transaction whose data or marker may be met, in any order.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._ongoing_aborted: dict[int, AbortedTransaction] = {}
        self._data_seen: dict[int, bool] = {}  # by producer, for the transaction it has going
        self.still_needed: list[AbortedTransaction] = []
        """Aborted transactions of which data was met before their marker: the cleaned segments' transaction index."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch is part of an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.attributes & TRANSACTIONAL:
            return False
        self._data_seen[header.producer_id] = True
        return header.producer_id in self._ongoing_aborted

    def marker_is_empty(self, header: BatchHeader, *, committed: bool) -> bool:
        """Whether an end marker ends a transaction of which no batch was met: it may go once its own horizon has passed."""
        self._begin_up_to(header.last_offset)
        aborted = None if committed else self._ongoing_aborted.pop(header.producer_id, None)
        data_seen = self._data_seen.pop(header.producer_id, False)
        if aborted is not None and data_seen:
            self.still_needed.append(aborted)
        return not data_seen

    def take_still_needed(self) -> list[AbortedTransaction]:
        """The entries gathered since the last call, by rising marker."""
        taken, self.still_needed = self.still_needed, []
        return taken

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[-1].first_offset <= offset:
            entry = self._waiting.pop()
            self._ongoing_aborted[entry.producer_id] = entry
