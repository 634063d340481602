"""Offsets that transactions commit: who may, when they count, what becomes of them when something else happens first."""

from typing import Any

import pytest

from ottla.broker.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.broker.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import Member
from tests.unit.broker.coordinator.groups.group_bench import DAY_MS, Asked, Bench
from tests.unit.broker.coordinator.groups.test_offsets import code, commit, offset

GUARD = 1
PRODUCER = 7


def commit_in_transaction(
    bench: Bench,
    committed: int,
    *,
    topic: str = "t",
    producer_id: int = PRODUCER,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    metadata: str | None = "",
    partition: int = 0,
) -> Asked:
    asked = Asked(3)
    told = TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(partition, committed, 4, metadata)])
    request = TxnOffsetCommitRequest("x", "g", producer_id, 0, generation, member_id, instance, [told])
    bench.shard.transactional.commit(asked, request, GUARD)
    return asked


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_offset_counts_when_its_transaction_is_committed(is_commit: bool) -> None:
    bench = Bench()
    commit(bench, 1)
    assert code(commit_in_transaction(bench, 5)) is ErrorCode.NONE
    assert offset(bench) == (1, 0)
    assert offset(bench, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    bench.end_transaction(PRODUCER, is_commit=is_commit)
    assert offset(bench, stable=True) == offset(bench) == (5 if is_commit else 1, 0)
    assert bench.another().shard.contents() == bench.shard.contents()


def test_a_coordinator_that_takes_over_knows_what_is_undecided() -> None:
    bench = Bench()
    commit_in_transaction(bench, 5)
    other = bench.another()
    assert offset(other, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    other.end_transaction(PRODUCER, is_commit=True)
    assert offset(other, stable=True) == (5, 0)


def test_it_is_answered_when_it_is_committed() -> None:
    bench = Bench(commits=False)
    asked = commit_in_transaction(bench, 5)
    assert asked.waits
    bench.commit()
    assert code(asked) is ErrorCode.NONE


def test_what_cannot_be_written_is_told_and_nothing_waits_for_a_marker() -> None:
    bench = Bench()
    bench.refuses = ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(commit_in_transaction(bench, 5)) is ErrorCode.INVALID_PRODUCER_EPOCH
    bench.refuses = ErrorCode.NONE
    assert offset(bench, stable=True) == (-1, 0)


def test_transactions_of_two_producers_do_not_decide_each_other() -> None:
    bench = Bench()
    commit_in_transaction(bench, 5)
    commit_in_transaction(bench, 6, producer_id=8, topic="u")
    bench.end_transaction(8, is_commit=True)
    assert offset(bench, "u", stable=True) == (6, 0)
    assert offset(bench, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    bench.end_transaction(PRODUCER, is_commit=False)
    assert offset(bench, stable=True) == (-1, 0)


def test_offsets_do_not_jump_back_when_an_older_transaction_ends_later() -> None:
    """Jepsen's finding of Kafka: committed offsets that jump. Of two commits the later record counts."""
    bench = Bench()
    commit_in_transaction(bench, 5)
    commit_in_transaction(bench, 9, producer_id=8)
    bench.end_transaction(8, is_commit=True)
    bench.end_transaction(PRODUCER, is_commit=True)
    assert offset(bench, stable=True) == (9, 0)
    commit_in_transaction(bench, 12)
    commit(bench, 20)
    bench.end_transaction(PRODUCER, is_commit=True)
    assert offset(bench, stable=True) == (20, 0)
    assert bench.another().shard.contents() == bench.shard.contents()


def test_a_torn_transaction_is_not_to_be_had_from_several_partitions_offsets() -> None:
    """Jepsen's finding of Kafka: torn transactions. All offsets of one count at once, or none does."""
    bench = Bench()
    for topic in ("t", "u"):
        commit_in_transaction(bench, 5, topic=topic)
    assert {offset(bench, topic, stable=True)[1] for topic in ("t", "u")} == {ErrorCode.UNSTABLE_OFFSET_COMMIT}
    bench.end_transaction(PRODUCER, is_commit=True)
    assert [offset(bench, topic, stable=True) for topic in ("t", "u")] == [(5, 0)] * 2


def test_a_topic_that_is_made_again_does_not_wait_for_transactions_of_the_one_before() -> None:
    bench = Bench()
    commit_in_transaction(bench, 5)
    bench.topic_ids["t"] = b"another".ljust(16, b".")
    assert offset(bench, stable=True) == (-1, 0)
    commit_in_transaction(bench, 3, producer_id=8)
    assert offset(bench, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    bench.end_transaction(8, is_commit=True)
    bench.end_transaction(PRODUCER, is_commit=True)
    assert offset(bench, stable=True) == (3, 0)


# --- who may ----------------------------------------------------------------------------------------------------------


def test_who_says_that_he_is_a_member_has_to_be_one_of_the_generation() -> None:
    bench = Bench()
    (member,) = bench.stable(1)
    tries: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"generation": 1, "member_id": member}, ErrorCode.NONE),
        ({"generation": 0, "member_id": member}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 1, "member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": -1, "member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1, "member_id": member, "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.NONE),  # clients of versions below 3
    ]
    assert [code(commit_in_transaction(bench, 5, **given)) for given, _ in tries] == [each for _, each in tries]


def test_a_zombie_of_an_older_generation_commits_nothing() -> None:
    bench = Bench()
    first, second = bench.stable(2)
    bench.leave(second)
    bench.join(first)
    bench.wait(60_000)
    assert code(commit_in_transaction(bench, 5, generation=1, member_id=first)) in (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    bench.end_transaction(PRODUCER, is_commit=True)
    assert offset(bench) == (-1, 0)


def test_a_member_of_the_consumer_protocol_says_its_epoch_as_a_generation() -> None:
    bench = Bench()
    member = Member(bench, "m")
    member.join()
    tries: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"generation": member.epoch, "member_id": "m"}, ErrorCode.NONE),
        ({"generation": member.epoch + 1, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": member.epoch - 1, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": member.epoch, "member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert [code(commit_in_transaction(bench, 5, **given)) for given, _ in tries] == [each for _, each in tries]
    member.leave()
    assert code(commit_in_transaction(bench, 6)) is ErrorCode.NONE


def test_who_only_names_a_group_of_the_consumer_protocol_is_fenced_by_the_transaction_alone() -> None:
    """As in a classic group: clients below version 3 can say no more, and `new ConsumerGroupMetadata("g")` says no more (KAFKA-18060)."""
    bench = Bench()
    Member(bench, "m").join()
    assert code(commit_in_transaction(bench, 5)) is ErrorCode.NONE
    bench.end_transaction(PRODUCER, is_commit=True)
    assert offset(bench) == (5, 0)


def test_a_group_that_nobody_knows_has_no_generation() -> None:
    bench = Bench()
    assert code(commit_in_transaction(bench, 5, generation=3, member_id="m")) is ErrorCode.ILLEGAL_GENERATION
    assert bench.group is None


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"topic": "nix"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 2_000}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"metadata": "x" * 5_000}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_what_cannot_be_committed_is_refused_by_itself(given: dict[str, Any], error: ErrorCode) -> None:
    bench = Bench()
    assert code(commit_in_transaction(bench, 5, **given)) is error
    assert bench.log == []


def test_without_a_producer_there_is_no_transaction_and_nothing_counts() -> None:
    bench = Bench()
    assert code(commit_in_transaction(bench, 5, producer_id=-1)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert offset(bench) == (-1, 0)


# --- while it is undecided --------------------------------------------------------------------------------------------


def test_neither_group_nor_offset_expires_while_a_transaction_is_undecided() -> None:
    bench = Bench()
    commit(bench, 1)
    commit_in_transaction(bench, 5)
    bench.wait(8 * DAY_MS)
    bench.shard.expire()
    assert offset(bench) == (1, 0)
    bench.end_transaction(PRODUCER, is_commit=False)
    bench.shard.expire()
    assert offset(bench) == (-1, 0)


def test_a_group_of_undecided_offsets_alone_is_kept() -> None:
    bench = Bench()
    commit_in_transaction(bench, 5)
    bench.shard.expire()
    assert bench.group is not None
    bench.end_transaction(PRODUCER, is_commit=True)
    assert offset(bench.another()) == (5, 0)


def test_a_deleted_groups_offsets_do_not_come_back_with_a_marker() -> None:
    bench = Bench()
    commit_in_transaction(bench, 5)
    told: list[dict[str, ErrorCode]] = []
    bench.shard.delete(["g"], told.append)
    bench.end_transaction(PRODUCER, is_commit=True)
    assert told == [{"g": ErrorCode.NONE}]
    assert offset(bench, stable=True) == offset(bench.another(), stable=True) == (-1, 0)


def test_a_deleted_offset_does_not_come_back_with_a_marker() -> None:
    bench = Bench()
    commit_in_transaction(bench, 5)
    asked = Asked(0)
    told = OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])
    bench.shard.commits.delete(asked, OffsetDeleteRequest("g", [told]))
    bench.end_transaction(PRODUCER, is_commit=True)
    assert offset(bench, stable=True) == offset(bench.another(), stable=True) == (-1, 0)


def test_a_deletion_that_cannot_be_written_leaves_the_transaction_what_it_had() -> None:
    bench = Bench()
    commit_in_transaction(bench, 5)
    bench.commits = False
    bench.shard.delete(["g"], lambda _: None)
    bench.fail()
    bench.commits = True
    bench.end_transaction(PRODUCER, is_commit=True)
    assert offset(bench, stable=True) == (5, 0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_group_that_was_deleted_while_a_transaction_was_undecided_leaves_nothing(is_commit: bool) -> None:
    bench = Bench()
    commit_in_transaction(bench, 5)
    bench.shard.delete(["g"], lambda _: None)
    bench.end_transaction(PRODUCER, is_commit=is_commit)
    assert not any(vars(bench.shard.offsets).values())
