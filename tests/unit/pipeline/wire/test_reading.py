"""What an answer to Fetch means for a range that is read."""

from typing import Any

import pytest

from ottla.broker.wire.schema import message
from ottla.log.records import Record, encode_batch
from ottla.pipeline.wire.codec import struct_classes
from ottla.pipeline.wire.reading import Next, OldFormatError, Range, Reading, walk
from ottla.runtime.errors import ErrorCode


def batch(first: int, count: int) -> bytes:
    return bytes(
        encode_batch(
            [Record(offset=first + n, timestamp=0, key=None, value=b"v") for n in range(count)], base_offset=first
        )
    )


def part(records: bytes = b"", **fields: Any) -> Any:
    made = struct_classes(message("FetchResponse"))["PartitionData"]()
    for name, value in {"high_watermark": 100, "last_stable_offset": 100, **fields}.items():
        setattr(made, name, value)
    made.records = memoryview(records)
    return made


def reading(start: int = 0, end: int = 10) -> Reading:
    return Reading(0, Range("t", 0, start, end))


def take(it: Reading, answer: Any, *, committed: bool = False, alone: bool = True, from_leader: bool = True) -> Next:
    return it.take(answer, reads_committed=committed, alone=alone, from_leader=from_leader)


def test_whole_batches_bring_it_further_and_a_part_of_one_does_not() -> None:
    records = batch(0, 3) + batch(3, 2)
    it = reading()

    assert take(it, part(records + batch(5, 1)[:-1])) is Next.READ_ON
    assert [(bytes(got.records), got.next_offset) for got in it.inbox] == [(records, 5)]
    assert not it.is_done


def test_it_ends_with_the_batch_that_holds_its_last_offset() -> None:
    it = reading(4, 7)
    assert take(it, part(batch(3, 3) + batch(6, 3) + batch(9, 3))) is Next.READ_ON

    assert (it.next_offset, it.is_done) == (9, True)
    assert len(it.inbox[0].records) == len(batch(3, 3) + batch(6, 3))


def test_a_hole_that_reaches_beyond_the_end_ends_it() -> None:
    assert walk(memoryview(batch(0, 2) + batch(50, 1)), 0, 10) == (10, len(batch(0, 2)))
    assert walk(memoryview(batch(50, 1)), 4, 10) == (10, 0)


def test_a_compacted_end_without_records_ends_it() -> None:
    it = reading(4, 7)
    assert take(it, part(high_watermark=7)) is Next.READ_ON
    assert it.is_done
    assert it.inbox[0].next_offset == 7


def test_nothing_for_want_of_room_is_asked_for_again() -> None:
    it = reading()
    assert take(it, part(), alone=False) is Next.WAIT
    assert it.next_offset == 0


@pytest.mark.parametrize(("committed", "step"), [(False, Next.READ_ON), (True, Next.WAIT)])
def test_what_is_committed_ends_at_the_last_stable_offset(committed: bool, step: Next) -> None:
    assert take(reading(), part(last_stable_offset=5), committed=committed) is step


def test_a_leader_that_does_not_know_yet_is_waited_for_and_a_follower_is_left() -> None:
    assert take(reading(), part(high_watermark=3)) is Next.WAIT
    assert take(reading(), part(high_watermark=3), from_leader=False) is Next.TO_THE_LEADER


def test_a_nearer_replica_is_gone_to() -> None:
    it = reading()
    assert take(it, part(preferred_read_replica=3)) is Next.ELSEWHERE
    assert it.node == 3


@pytest.mark.parametrize(
    ("code", "from_leader", "step"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, Next.WAIT),
        (ErrorCode.OFFSET_NOT_AVAILABLE, True, Next.WAIT),
        (ErrorCode.OFFSET_OUT_OF_RANGE, True, Next.OUT_OF_RANGE),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False, Next.TO_THE_LEADER),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True, Next.REFUSED),
        (ErrorCode.CORRUPT_MESSAGE, True, Next.REFUSED),
    ],
)
def test_errors_pass_or_do_not(code: ErrorCode, from_leader: bool, step: Next) -> None:
    it = reading()
    assert take(it, part(error_code=int(code)), from_leader=from_leader) is step
    assert (code, code.name) == (it.code, it.reason)


def test_aborted_transactions_come_with_the_records_they_are_about() -> None:
    aborted = struct_classes(message("FetchResponse"))["AbortedTransaction"]
    it = reading()
    take(it, part(batch(0, 1), aborted_transactions=[aborted(7, 0), aborted(9, 4)]))

    assert it.inbox[0].aborted == [(7, 0), (9, 4)]


def test_records_of_before_version_two_are_refused() -> None:
    old = bytearray(batch(0, 1))
    old[16] = 1
    with pytest.raises(OldFormatError, match="format 1"):
        take(reading(), part(bytes(old)))
