"""Whether producers' sequence numbers go on as they must: twice the same number is a record twice, though each CRC be right."""

import numpy as np

from ottla.pipeline.arrow.batches import CONTROL, Headers, Int64s
from ottla.pipeline.audit.findings import FAULT, NOTE, Notebook

_SEQUENCES = 1 << 31
_HALF = _SEQUENCES // 2


class Sequences:
    """What each producer wrote last. Batches come in order."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._last: dict[int, tuple[int, int]] = {}  # producer: epoch, the sequence that follows

    def look_at(self, headers: Headers, bases: Int64s, path: str) -> None:
        chosen = np.flatnonzero(
            (headers["producer_id"] >= 0) & (headers["base_sequence"] >= 0) & (headers["attributes"] & CONTROL == 0)
        )
        if not chosen.size:
            return
        headers, bases = headers[chosen], bases[chosen]
        producers = headers["producer_id"].astype(np.int64)
        order = np.argsort(producers, kind="stable")
        headers, bases, producers = headers[order], bases[order], producers[order]
        epochs, firsts = headers["producer_epoch"].astype(np.int64), headers["base_sequence"].astype(np.int64)
        behind = (firsts + headers["last_offset_delta"] + 1) % _SEQUENCES
        begins = np.flatnonzero(np.diff(producers, prepend=-1))
        epochs_before, expected = np.roll(epochs, 1), np.roll(behind, 1)
        for index in begins.tolist():
            known = self._last.get(int(producers[index]), (int(epochs[index]), int(firsts[index])))
            epochs_before[index], expected[index] = known
        for index in np.append(begins[1:], len(producers)).tolist():
            self._last[int(producers[index - 1])] = (int(epochs[index - 1]), int(behind[index - 1]))
        odd = (epochs < epochs_before) | ((epochs == epochs_before) & (firsts != expected))
        for index in np.flatnonzero(odd).tolist():
            where = (int(producers[index]), int(epochs[index]), int(firsts[index]))
            self._note(path, int(bases[index]), where, int(epochs_before[index]), int(expected[index]))

    def _note(self, path: str, offset: int, where: tuple[int, int, int], epoch_before: int, expected: int) -> None:
        producer, epoch, first = where
        add = self._notebook.add
        if epoch < epoch_before:
            add(FAULT, "producer-epoch", path, offset, f"producer {producer}: epoch {epoch} behind {epoch_before}")
        elif (first - expected) % _SEQUENCES < _HALF:
            message = f"producer {producer}, epoch {epoch}: sequence {first} where {expected} was next"
            add(NOTE, "sequence-gap", path, offset, message)
        elif first == 0:
            message = f"producer {producer}, epoch {epoch}: sequences begin anew where {expected} was next"
            add(NOTE, "sequence-reset", path, offset, message)
        else:
            message = f"producer {producer}, epoch {epoch}: sequence {first} again, {expected} was next"
            add(FAULT, "duplicate", path, offset, message)
