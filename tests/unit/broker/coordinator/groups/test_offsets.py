"""Committed offsets: who may commit, what is found again, what is forgotten when (kraft.md 5.3, "Offsets")."""

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups import endings
from ottla.broker.coordinator.decisions.groups.committed_offset import CommittedOffset
from ottla.broker.coordinator.decisions.groups.group_records import FORMAT, offset_record
from ottla.broker.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.broker.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.broker.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.broker.wire.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import DAY_MS, Asked, Bench
from tests.unit.broker.coordinator.shard_bench import TIME_MS


def commit(
    bench: Bench,
    offset: int,
    *,
    topic: str = "t",
    generation: int = -1,
    member_id: str = "",
    metadata: str | None = "",
    retention_ms: int = -1,
    version: int = 9,
    group: str = "g",
    partition: int = 0,
) -> Asked:
    asked = Asked(version)
    topic_id = bench.topic_ids.get(topic, b"?" * 16) if version >= 10 else bytes(16)
    told = OffsetCommitRequestTopic(topic, topic_id, [OffsetCommitRequestPartition(partition, offset, 4, metadata)])
    bench.shard.commits.commit(asked, OffsetCommitRequest(group, generation, member_id, None, retention_ms, [told]))
    return asked


def code(asked: Asked) -> ErrorCode:
    return ErrorCode(asked.said.topics[0].partitions[0].error_code)


def fetch(
    bench: Bench, topics: Sequence[str] | None = ("t",), *, stable: bool = False, by_id: bool = False
) -> list[Any]:
    answers: list[Any] = []
    asked = None
    if topics is not None:
        asked = [OffsetFetchRequestTopics(each, bench.topic_ids.get(each, b"?" * 16), [0]) for each in topics]
    request = OffsetFetchRequestGroup("g", None, -1, asked)
    bench.shard.commits.fetch(request, is_stable=stable, by_id=by_id, told=answers.append)
    return answers


def offset(bench: Bench, topic: str = "t", **more: Any) -> tuple[int, int]:
    (answer,) = fetch(bench, (topic,), **more)
    found = answer.topics[0].partitions[0]
    return found.committed_offset, found.error_code


def test_what_is_committed_is_found_again() -> None:
    bench = Bench()
    assert code(commit(bench, 5, metadata="m")) is ErrorCode.NONE
    (answer,) = fetch(bench)
    found = answer.topics[0].partitions[0]
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (5, 4, "m")
    assert offset(bench.another()) == (5, 0)


def test_a_commit_is_answered_when_it_is_committed_and_so_is_who_reads_it() -> None:
    bench = Bench(commits=False)
    asked = commit(bench, 5)
    read = fetch(bench)
    assert asked.waits
    assert read == []
    bench.commit()
    assert code(asked) is ErrorCode.NONE
    assert read[0].topics[0].partitions[0].committed_offset == 5


def test_a_commit_that_cannot_be_written_is_refused_and_not_seen() -> None:
    bench = Bench()
    bench.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code(commit(bench, 5)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.refuses = ErrorCode.NONE
    assert offset(bench) == (-1, 0)


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_read_that_may_not_last_is_refused_in_a_way_that_all_clients_know(error: ErrorCode) -> None:
    """Of a coordinator that is not available consumers of Java before 3.9 and of aiokafka end."""
    bench = Bench(commits=False)
    commit(bench, 5)
    read = fetch(bench)
    bench.commit(error)
    assert read[0].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("generation", "member_id", "error"),
    [
        (1, "c-id1", ErrorCode.NONE),
        (0, "c-id1", ErrorCode.ILLEGAL_GENERATION),
        (2, "c-id1", ErrorCode.ILLEGAL_GENERATION),
        (1, "c-id9", ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, "", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_of_a_group_with_members_only_they_commit(generation: int, member_id: str, error: ErrorCode) -> None:
    bench = Bench()
    bench.stable(1)
    assert code(commit(bench, 5, generation=generation, member_id=member_id)) is error


def test_a_generation_that_nobody_gave_is_refused() -> None:
    assert code(commit(Bench(), 5, generation=3, member_id="c-id1", version=8)) is ErrorCode.ILLEGAL_GENERATION
    assert code(commit(Bench(), 5, generation=3, member_id="c-id1")) is ErrorCode.GROUP_ID_NOT_FOUND, (
        "clients know it by then"
    )


def test_members_commit_while_a_rebalance_is_prepared_but_not_before_they_know_their_part_of_it() -> None:
    bench = Bench()
    ids = bench.stable(2)
    joining = bench.join(ids[0])
    assert code(commit(bench, 5, generation=1, member_id=ids[1])) is ErrorCode.NONE
    bench.join(ids[1])
    assert joining.said.generation_id == 2
    assert code(commit(bench, 5, generation=2, member_id=ids[1])) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_its_member_alive() -> None:
    bench = Bench()
    ids = bench.stable(1)
    for _ in range(4):
        bench.wait(9_000)
        assert code(commit(bench, 5, generation=1, member_id=ids[0])) is ErrorCode.NONE


def test_metadata_that_is_too_long_is_refused() -> None:
    bench = Bench(offset_metadata_bytes_max=3)
    assert code(commit(bench, 5, metadata="four")) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert code(commit(bench, 5, metadata=None)) is ErrorCode.NONE


def test_what_no_record_can_hold_is_refused() -> None:
    bench = Bench(offset_metadata_bytes_max=100_000)
    assert code(commit(bench, 1, group="g" * 32_768)) is ErrorCode.INVALID_GROUP_ID
    assert code(commit(bench, 1, metadata="m" * 32_768)) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert code(commit(bench, 1, metadata="\u20ac" * 20_000)) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not bench.log


def test_a_topic_that_does_not_exist_cannot_be_committed_to() -> None:
    bench = Bench()
    assert code(commit(bench, 5, topic="nix")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(commit(bench, 5, topic="nix", version=10)) is ErrorCode.UNKNOWN_TOPIC_ID
    assert bench.log == []


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("partition", [-1, 2_000, 2**31 - 1])
def test_a_commit_for_a_partition_that_the_topic_has_not_is_refused(version: int, partition: int) -> None:
    """Each would be a record, and a place in memory, for as long as the topic is there."""
    bench = Bench()
    assert code(commit(bench, 5, partition=partition, version=version)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.log == []


def test_topics_are_known_by_their_ids_as_well() -> None:
    bench = Bench()
    assert code(commit(bench, 5, version=10)) is ErrorCode.NONE
    assert offset(bench, by_id=True) == (5, 0)
    (answer,) = fetch(bench, None, by_id=True)
    assert answer.topics[0].topic_id == bench.topic_ids["t"]


def test_all_offsets_of_a_group_are_told_when_none_is_named() -> None:
    bench = Bench()
    commit(bench, 5)
    commit(bench, 6, topic="u")
    (answer,) = fetch(bench, None)
    assert [(each.name, each.partitions[0].committed_offset) for each in answer.topics] == [("t", 5), ("u", 6)]


def test_an_offset_of_a_topic_that_had_the_name_before_is_none() -> None:
    bench = Bench()
    commit(bench, 5)
    bench.topic_ids["t"] = b"another".ljust(16, b".")
    assert offset(bench) == (-1, 0)


def test_offsets_of_a_deleted_topic_are_forgotten() -> None:
    bench = Bench()
    commit(bench, 5)
    commit(bench, 6, topic="u")
    del bench.topic_ids["t"]
    bench.shard.expire()
    bench.topic_ids["t"] = b"another".ljust(16, b".")
    assert offset(bench.another()) == (-1, 0)
    assert offset(bench.another(), "u") == (6, 0)


# --- transactions (KIP-447) -------------------------------------------------------------------------------------------


def pend(bench: Bench, value: int, producer_id: int = 7) -> None:
    record = offset_record("g", "t", 0, CommittedOffset(value, 1, "", TIME_MS, topic_id=bench.topic_ids["t"]))
    bench.shard.replay(record, len(bench.log), producer_id)
    bench.log.append(record)


def test_what_a_transaction_commits_counts_from_its_marker_on() -> None:
    bench = Bench()
    commit(bench, 5)
    pend(bench, 6)
    assert offset(bench) == (5, 0)
    assert offset(bench, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    bench.shard.end_transaction(7, is_commit=True)
    assert offset(bench, stable=True) == (6, 0)


def test_what_an_aborted_transaction_wanted_is_forgotten() -> None:
    bench = Bench()
    commit(bench, 5)
    pend(bench, 6)
    bench.shard.end_transaction(7, is_commit=False)
    assert offset(bench, stable=True) == (5, 0)


def test_of_two_commits_the_later_record_counts() -> None:
    bench = Bench()
    pend(bench, 6)
    commit(bench, 9)
    bench.shard.end_transaction(7, is_commit=True)
    assert offset(bench) == (9, 0)


def test_a_deleted_offset_does_not_come_back_with_a_marker() -> None:
    bench = Bench()
    commit(bench, 5)
    pend(bench, 6)
    bench.shard.delete(["g"], lambda _: None)
    bench.shard.end_transaction(7, is_commit=True)
    assert offset(bench) == (-1, 0)


# --- deleting ---------------------------------------------------------------------------------------------------------


def delete(bench: Bench, topic: str = "t", partition: int = 0) -> Any:
    asked = Asked(0)
    told = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])
    bench.shard.commits.delete(asked, OffsetDeleteRequest("g", [told]))
    return asked.said


def subscription(*topics: str) -> bytes:
    from ottla.broker.wire.codec import encoder

    told = encoder(ConsumerProtocolSubscription, 3)(ConsumerProtocolSubscription(topics=list(topics)))
    return b"\0\3" + b"".join(told)


def test_offsets_of_topics_that_nobody_reads_can_be_deleted() -> None:
    bench = Bench()
    commit(bench, 5)
    commit(bench, 6, topic="u")
    bench.stable(1, metadata=subscription("t"))
    assert delete(bench, "t").topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(bench, "u").topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (offset(bench)[0], offset(bench, "u")[0]) == (5, -1)


@pytest.mark.parametrize(("topic", "partition"), [("nix", 0), ("t", 2_000)])
def test_an_offset_of_a_partition_that_is_not_there_cannot_be_deleted(topic: str, partition: int) -> None:
    bench = Bench()
    commit(bench, 5)
    answer = delete(bench, topic, partition=partition)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_of_a_group_whose_subscriptions_cannot_be_read_nothing_is_deleted() -> None:
    bench = Bench()
    commit(bench, 5)
    bench.stable(1, metadata=b"?")
    assert delete(bench).topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_another_kind_of_group_has_to_be_empty() -> None:
    bench = Bench()
    commit(bench, 5)
    bench.join(kind="connect", version=3)
    assert delete(bench).error_code == ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_no_group_cannot_be_deleted() -> None:
    assert delete(Bench()).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_members_can_be_deleted_with_its_offsets() -> None:
    bench = Bench()
    commit(bench, 5)
    told: list[Any] = []
    bench.shard.delete(["g", "nix"], told.append)
    assert told == [{"g": ErrorCode.NONE, "nix": ErrorCode.GROUP_ID_NOT_FOUND}]
    assert bench.group is None
    assert bench.another().group is None
    assert offset(bench) == (-1, 0)


def test_a_group_with_members_cannot_be_deleted() -> None:
    bench = Bench()
    bench.stable(1)
    told: list[Any] = []
    bench.shard.delete(["g"], told.append)
    assert told == [{"g": ErrorCode.NON_EMPTY_GROUP}]


# --- expiry (KIP-211) -------------------------------------------------------------------------------------------------


def after(bench: Bench, days: float) -> tuple[int, bool]:
    bench.time_ms += int(days * DAY_MS)
    bench.shard.expire()
    return offset(bench)[0], bench.group is not None


def test_offsets_without_a_group_expire_some_time_after_they_were_committed() -> None:
    bench = Bench()
    commit(bench, 5)
    assert after(bench, 6.9) == (5, True)
    assert after(bench, 0.1) == (-1, False)
    assert bench.another().group is None


def test_offsets_of_a_group_live_as_long_as_it_has_members_and_some_time_more() -> None:
    bench = Bench()
    ids = bench.stable(1, metadata=subscription("t"))
    commit(bench, 5, generation=1, member_id=ids[0])
    assert after(bench, 30) == (5, True)
    bench.leave(ids[0])
    assert after(bench, 6.9) == (5, True)
    assert after(bench, 0.2) == (-1, False)


def test_offsets_of_topics_that_no_member_reads_expire_although_the_group_lives() -> None:
    bench = Bench()
    ids = bench.stable(1, metadata=subscription("u"))
    commit(bench, 5, generation=1, member_id=ids[0])
    assert after(bench, 7.1) == (-1, True)


def test_an_old_client_says_itself_when_its_offsets_expire() -> None:
    bench = Bench()
    commit(bench, 5, retention_ms=DAY_MS, version=4)
    assert offset(bench.another()) == (5, 0)
    assert after(bench, 0.9)[0] == 5
    assert after(bench, 0.2)[0] == -1


def test_an_old_client_may_say_that_its_offsets_never_expire() -> None:
    bench = Bench()
    assert code(commit(bench, 5, retention_ms=2**63 - 1, version=4)) is ErrorCode.NONE
    bench.wait(1_000 * DAY_MS)
    bench.shard.expire()
    assert offset(bench) == offset(bench.another()) == (5, 0)


def test_an_old_clients_offsets_do_not_expire_while_a_member_reads_their_topic() -> None:
    """Of a quiet topic they are committed seldom, and the next start would read it from an end."""
    bench = Bench()
    ids = bench.stable(1, metadata=subscription("t"))
    commit(bench, 5, generation=1, member_id=ids[0], retention_ms=DAY_MS, version=4)
    assert after(bench, 2) == (5, True)
    bench.join(ids[0], metadata=subscription("u"))
    assert after(bench, 2) == (5, True), "while it rebalances nobody knows who reads what"
    bench.sync(ids[0], 2)
    assert after(bench, 0) == (-1, True)


def test_groups_with_many_offsets_are_looked_at_over_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "OFFSETS_A_TURN", 2)
    bench = Bench()
    for group in ("a", "b", "c", "d"):
        commit(bench, 5, group=group)
    bench.time_ms += 8 * DAY_MS
    left = []
    bench.shard.expire()
    for _ in range(3):
        left.append(len(bench.shard.offsets))
        bench.wait(10)
    assert left == [2, 0, 0]
    commit(bench, 5)
    assert after(bench, 8) == (-1, False), "the round is over"


def test_an_offset_that_a_transaction_may_change_does_not_expire() -> None:
    bench = Bench()
    commit(bench, 5)
    pend(bench, 6)
    assert after(bench, 8) == (5, True)


def test_records_of_kinds_that_are_not_known_are_passed_over() -> None:
    bench = Bench()
    bench.shard.replay(Record(b"\0\x63whatever", b"\0\0"), 0)
    assert FORMAT.read(Record(b"\0\x63whatever", None)) is None
