"""Compaction of transactions: aborted records, end markers, the index of aborted transactions."""

import os
from collections.abc import Iterator

import pytest

from ottla.log.compaction.cleaner import clean
from ottla.log.segments.transactions import AbortedTransaction, TransactionIndex
from ottla.testing.log.compacted import DISK, NOW, RETENTION, CompactedLog, compacted_log


@pytest.fixture
def log() -> Iterator[CompactedLog]:
    with compacted_log() as log:
        yield log


def test_aborted_records_go_and_do_not_hide_committed_ones(log: CompactedLog) -> None:
    log.append(("a", "1"), ("b", "1"))
    log.append(("a", "aborted"), ("c", "aborted"), pid=5, sequence=0, transactional=True)
    log.mark(5, committed=False)
    log.append(("b", "2"), pid=5, sequence=2, transactional=True)
    log.mark(5, committed=True)
    log.clean()
    assert log.pairs() == [(0, "a", "1"), (5, "b", "2")]
    assert log.controls() == [(4, "ABORT"), (6, "COMMIT")]


def test_markers_go_a_horizon_after_their_data(log: CompactedLog) -> None:
    log.append(("a", "x"), pid=5, sequence=0, transactional=True)
    log.mark(5, committed=False)
    log.append(("b", "x"), pid=6, sequence=0, transactional=True)
    log.mark(6, committed=True)
    log.append(("b", "2"))
    log.append(("z", "1"))
    log.clean()
    assert log.pairs() == [(4, "b", "2"), (5, "z", "1")]
    assert log.controls() == [(1, "ABORT"), (3, "COMMIT")]
    log.append(("y", "1"))
    log.clean(now_ms=NOW + 5)  # the data is gone now, so the horizon begins
    assert log.controls() == [(1, "ABORT"), (3, "COMMIT")]
    log.append(("x", "1"))
    log.clean(now_ms=NOW + 4 + RETENTION)
    assert log.controls() == [(1, "ABORT"), (3, "COMMIT")]
    log.append(("w", "1"))
    log.clean(now_ms=NOW + 5 + RETENTION)
    assert log.controls() == []


def test_the_transaction_index_names_aborted_data_that_may_still_be_read(log: CompactedLog) -> None:
    log.append(("a", "x"), pid=5, sequence=0, transactional=True)
    log.mark(5, committed=False)
    log.append(("z", "1"))
    log.clean()
    assert TransactionIndex(DISK, log.path(0, ".txnindex")).entries() == [AbortedTransaction(5, 0, 1, 2)]
    log.append(("y", "1"))
    log.clean()
    assert not os.path.exists(log.path(0, ".txnindex"))


def test_a_transaction_aborted_behind_the_cleaned_part_is_known(log: CompactedLog) -> None:
    log.append(("a", "1"))
    log.append(("a", "x"), pid=5, sequence=0, transactional=True)
    log.roll()
    log.append(("b", "1"))
    log.mark(5, committed=False)
    log.install(clean(DISK, log.job()))
    assert log.pairs() == [(0, "a", "1"), (2, "b", "1")]


def test_an_aborted_transaction_before_the_dirty_part_does_not_taint_a_later_one(log: CompactedLog) -> None:
    log.append(("a", "x"), pid=5, sequence=0, transactional=True)
    log.mark(5, committed=False)
    log.append(("q", "1"))
    log.clean()
    log.append(("a", "1"), pid=5, sequence=1, transactional=True)
    log.mark(5, committed=True)
    log.append(("a", "2"), pid=5, sequence=2, transactional=True)
    log.mark(5, committed=True)
    log.clean()
    assert log.pairs() == [(2, "q", "1"), (5, "a", "2")]
