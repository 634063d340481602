"""What the simulation asks of a compacted partition, where transactions write."""

from ottla.testing.simulation.compaction import CommittedRecords, InTransaction, Seen

PRODUCER = 7


def known(*, committed: bool) -> CommittedRecords:
    """A plain record, one of a transaction with its key, and the marker."""
    records = CommittedRecords()
    records.commit([Seen(0, b"k", b"plain")], 1)
    records.commit([Seen(1, b"k", b"other")], 2, [InTransaction(1, 1, PRODUCER, None)])
    records.commit([], 3, [InTransaction(2, 2, PRODUCER, committed)])
    return records


def test_what_was_aborted_may_be_lacking_and_hides_nothing() -> None:
    aborted = known(committed=False)
    assert not aborted.fault([Seen(0, b"k", b"plain")], 0, 3, alone=True)
    assert "lacks Seen(offset=0" in aborted.fault([Seen(1, b"k", b"other")], 0, 3, alone=True)


def test_what_was_committed_must_be_there_and_hides_what_was_before() -> None:
    committed = known(committed=True)
    assert not committed.fault([Seen(1, b"k", b"other")], 0, 3, alone=True)
    assert "lacks Seen(offset=1" in committed.fault([Seen(0, b"k", b"plain")], 0, 3, alone=True)


def test_what_is_not_decided_hides_nothing() -> None:
    records = CommittedRecords()
    records.commit([Seen(0, b"k", b"plain")], 1)
    records.commit([Seen(1, b"k", b"other")], 2, [InTransaction(1, 1, PRODUCER, None)])
    assert "lacks Seen(offset=0" in records.fault([Seen(1, b"k", b"other")], 0, 2, alone=False)


def test_what_an_election_was_allowed_to_lose_may_be_lacking_and_hides_nothing() -> None:
    records = CommittedRecords()
    records.commit([Seen(0, b"k", b"first"), Seen(1, b"k", b"second")], 2)
    records.cut(1)
    assert not records.fault([Seen(0, b"k", b"first"), Seen(1, b"k", b"another")], 0, 2, alone=True)
    assert "lacks Seen(offset=0" in records.fault([], 0, 2, alone=False)
