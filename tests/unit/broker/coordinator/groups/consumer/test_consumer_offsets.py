"""Committed offsets of consumer groups: whose commits are taken, what expires, what may be deleted (KIP-848, KIP-1251)."""

from typing import Any

import pytest

from ottla.broker.coordinator.decisions.groups.describing import GroupFilter, described
from ottla.broker.wire.messages.offset_fetch_request import OffsetFetchRequestGroup
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import INTERVAL_MS, Member, T, join, settle
from tests.unit.broker.coordinator.groups.group_bench import DAY_MS, Bench
from tests.unit.broker.coordinator.groups.subscribing import written_subscription
from tests.unit.broker.coordinator.groups.test_offsets import code, commit, delete, offset
from tests.unit.broker.coordinator.groups.test_transactional_commits import PRODUCER, commit_in_transaction


def alone(bench: Bench) -> Member:
    one = Member(bench, "one")
    settle([one])
    return one


@pytest.mark.parametrize("version", [9, 10])
def test_a_member_commits_with_its_epoch(version: int) -> None:
    bench = Bench()
    one = alone(bench)
    assert code(commit(bench, 5, generation=one.epoch, member_id="one", version=version)) is ErrorCode.NONE
    assert offset(bench) == (5, 0)
    assert offset(bench.another()) == (5, 0)


def test_who_is_no_member_may_not_commit() -> None:
    bench = Bench()
    one = alone(bench)
    assert code(commit(bench, 5, generation=one.epoch, member_id="two")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(commit(bench, 5)) is ErrorCode.UNKNOWN_MEMBER_ID, "an administrator has to wait until nobody reads"
    one.leave()
    assert code(commit(bench, 5, generation=1, member_id="one")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(commit(bench, 5)) is ErrorCode.NONE


def test_an_epoch_that_was_not_given_yet_is_stale() -> None:
    bench = Bench()
    one = alone(bench)
    assert code(commit(bench, 5, generation=one.epoch + 1, member_id="one")) is ErrorCode.STALE_MEMBER_EPOCH


def test_a_commit_that_a_heartbeat_has_overtaken_is_taken_for_what_the_member_has_had_since() -> None:
    bench = Bench()
    one = alone(bench)
    before = one.epoch
    bench.partitions[T] = 5
    bench.shard.consumers.refresh({"t"})
    settle([one])
    assert one.epoch > before
    assert code(commit(bench, 5, generation=before, member_id="one", partition=3)) is ErrorCode.NONE
    assert code(commit(bench, 5, generation=before, member_id="one", partition=4)) is ErrorCode.STALE_MEMBER_EPOCH
    assert code(commit(bench, 5, generation=before, member_id="one", partition=9)) is ErrorCode.STALE_MEMBER_EPOCH
    assert code(commit(bench, 5, generation=before, member_id="one", topic="u")) is ErrorCode.STALE_MEMBER_EPOCH


def test_what_a_member_has_given_up_it_commits_no_more_with_an_older_epoch() -> None:
    bench = Bench()
    one, two = Member(bench, "one"), Member(bench, "two")
    one.join()
    settle([one, two])
    (gone, *_) = [partition for _, partition in one.revoked]
    assert code(commit(bench, 5, generation=1, member_id="one", partition=gone)) is ErrorCode.STALE_MEMBER_EPOCH


def test_what_a_member_is_giving_up_it_may_still_commit() -> None:
    bench = Bench()
    one = Member(bench, "one")
    one.join()
    bench.wait(INTERVAL_MS)
    join(bench, "two")
    one.beat()
    for partition in range(4):
        assert code(commit(bench, 5, generation=1, member_id="one", partition=partition)) is ErrorCode.NONE


def test_what_it_is_giving_up_it_may_commit_with_an_epoch_before_this_one() -> None:
    bench = Bench()
    one = alone(bench)
    bench.partitions[T] = 5
    bench.shard.consumers.refresh({"t"})
    settle([one])
    join(bench, "two")
    one.beat()
    (gone, *_) = [partition for _, partition in one.revoked if partition < 4]
    assert code(commit(bench, 5, generation=1, member_id="one", partition=gone)) is ErrorCode.NONE


def test_a_version_that_knows_no_epochs_is_told_so() -> None:
    bench = Bench()
    one = alone(bench)
    asked = commit(bench, 5, generation=one.epoch, member_id="one", version=8)
    assert code(asked) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("", -1, ErrorCode.NONE),
        ("one", 1, ErrorCode.NONE),
        ("one", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("one", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("two", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_that_fetches_has_to_be_one(member_id: str | None, epoch: int, error: ErrorCode) -> None:
    bench = Bench()
    alone(bench)
    assert fetch_error(bench, member_id, epoch) is error


def test_a_classic_member_that_fetches_is_told_of_its_generation() -> None:
    """Classic consumers know nothing of epochs that are stale."""
    bench = Bench()
    alone(bench)
    said = bench.join("m", metadata=written_subscription(["t"])).said
    assert fetch_error(bench, "m", said.generation_id) is ErrorCode.NONE
    assert fetch_error(bench, "m", said.generation_id + 1) is ErrorCode.ILLEGAL_GENERATION


def fetch_error(bench: Bench, member_id: str | None, epoch: int) -> ErrorCode:
    told: list[Any] = []
    request = OffsetFetchRequestGroup("g", member_id, epoch, None)
    bench.shard.commits.fetch(request, is_stable=False, by_id=False, told=told.append)
    (answer,) = told
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("one", 1, ErrorCode.NONE),
        ("", -1, ErrorCode.NONE),
        ("one", 0, ErrorCode.ILLEGAL_GENERATION),
        ("one", 2, ErrorCode.ILLEGAL_GENERATION),
        ("two", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("two", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_transaction_commits_for_a_member_or_says_of_none(member_id: str, epoch: int, error: ErrorCode) -> None:
    bench = Bench()
    alone(bench)
    assert code(commit_in_transaction(bench, 5, member_id=member_id, generation=epoch)) is error
    bench.end_transaction(PRODUCER, is_commit=True)
    assert offset(bench) == ((-1, 0) if error else (5, 0))


def test_offsets_of_topics_that_somebody_reads_are_kept_and_the_others_expire() -> None:
    bench = Bench()
    one = alone(bench)
    for topic in ("t", "u"):
        commit(bench, 5, topic=topic, generation=one.epoch, member_id="one")
    for _ in range(8):
        bench.wait(DAY_MS)
        one.beat()
        one.beat()
    bench.shard.expire()
    assert offset(bench) == (5, 0)
    assert offset(bench, "u") == (-1, 0)


def test_a_group_without_members_and_offsets_is_gone_and_one_with_members_is_not() -> None:
    bench = Bench()
    one = alone(bench)
    commit(bench, 5, generation=one.epoch, member_id="one")
    bench.shard.expire()
    one.leave()
    bench.shard.expire()
    assert bench.shard.consumers.find("g") is not None, "its offset is young"
    bench.wait(8 * DAY_MS)
    bench.shard.expire()
    assert bench.shard.contents() == Bench().shard.contents() == bench.another().shard.contents()


def test_a_group_with_members_is_not_deleted() -> None:
    bench = Bench()
    one = alone(bench)
    told: list[dict[str, ErrorCode]] = []
    bench.shard.delete(["g"], told.append)
    one.leave()
    bench.shard.delete(["g"], told.append)
    bench.shard.delete(["g"], told.append)
    assert [each["g"] for each in told] == [
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]


def test_offsets_of_topics_that_somebody_reads_are_not_deleted() -> None:
    bench = Bench()
    one = alone(bench)
    for topic in ("t", "u"):
        commit(bench, 5, topic=topic, generation=one.epoch, member_id="one")
    errors = [delete(bench, topic).topics[0].partitions[0].error_code for topic in ("t", "u")]
    assert errors == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert offset(bench, "u") == (-1, 0)


def test_a_group_is_listed_with_its_kind_and_state() -> None:
    bench = Bench()
    alone(bench)
    (found,) = GroupFilter(["stable"], ["Consumer"]).among(bench.shard.all())
    assert (found.group_id, found.protocol_type, found.group_state, found.group_type) == (
        "g",
        "consumer",
        "Stable",
        "consumer",
    )
    assert not GroupFilter([], ["classic"]).among(bench.shard.all())
    assert described("g", bench.shard.find("g"), 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_do_not_expire_while_the_only_member_is_away_for_a_moment() -> None:
    """It has read a quiet topic for longer than offsets are kept."""
    bench = Bench()
    one = alone(bench)
    assert code(commit(bench, 5, generation=one.epoch, member_id="one")) is ErrorCode.NONE
    for _ in range(8 * DAY_MS // 40_000):
        bench.wait(40_000)
        one.beat()
    one.leave()
    bench.shard.expire()
    assert offset(bench) == (5, 0)
    bench.wait(8 * DAY_MS)
    bench.shard.expire()
    assert offset(bench)[0] == -1


@pytest.mark.parametrize("gives_up", [False, True])
def test_nor_while_a_classic_member_is_about_to_take_its_place(gives_up: bool) -> None:
    bench = Bench()
    one = alone(bench)
    commit(bench, 5, generation=one.epoch, member_id="one")
    bench.time_ms += 8 * DAY_MS
    one.leave()
    assert bench.join().error is ErrorCode.MEMBER_ID_REQUIRED
    bench.wait(20_000 * gives_up)
    bench.shard.expire()
    assert offset(bench) == (5, 0)
    bench.wait(8 * DAY_MS)
    bench.shard.expire()
    assert bench.shard.contents() == Bench().shard.contents()
