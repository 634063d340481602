"""Transactions that nobody may end any more are counted (KIP-664)."""

import pytest

from ottla.log.batch import read_header
from ottla.log.producers.state import ProducerStateManager
from ottla.log.records import EndMarker, Record, encode_batch

WRITTEN_MS = 1_000_000


def begun(
    producer_id: int, offset: int, at_ms: int = WRITTEN_MS, producers: ProducerStateManager | None = None
) -> ProducerStateManager:
    producers = producers or ProducerStateManager()
    batch = encode_batch(
        [Record(0, at_ms, None, b"v")], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )
    producers.update(read_header(batch), offset)
    return producers


@pytest.mark.parametrize(("before_ms", "is_late"), [(WRITTEN_MS, False), (WRITTEN_MS + 1, True)])
def test_a_transaction_is_late_when_nothing_was_written_to_it_for_so_long(before_ms: int, is_late: bool) -> None:
    assert begun(7, 0).has_late(before_ms) is is_late


def test_the_oldest_counts_and_one_that_ended_does_not() -> None:
    producers = begun(8, 1, WRITTEN_MS + 100, begun(7, 0))
    assert producers.has_late(WRITTEN_MS + 50)
    header = read_header(
        encode_batch(
            [Record(0, WRITTEN_MS, b"", b"")], producer_id=7, producer_epoch=0, control=True, transactional=True
        )
    )
    producers.update(header, 2, EndMarker(False, 0))
    assert not producers.has_late(WRITTEN_MS + 50)
    assert not ProducerStateManager().has_late(WRITTEN_MS)
