"""A shard's state is what its records say: when it is loaded, when they cannot be written, when groups come to their end."""

import pytest

from ottla.broker.coordinator.decisions.effects import Record
from ottla.broker.coordinator.decisions.groups import endings
from ottla.broker.coordinator.decisions.groups.classic_group import ClassicGroup
from ottla.broker.coordinator.decisions.groups.group_records import group_record
from ottla.broker.coordinator.decisions.groups.member import Member
from ottla.broker.wire.errors import WireError
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import DAY_MS, Bench
from tests.unit.broker.coordinator.groups.test_offsets import commit, offset

GROUP_KEY = b"\0\2\0\1g"


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", b""), (b"\0", None), (GROUP_KEY, b""), (GROUP_KEY, b"\0"), (GROUP_KEY, b"\0\x63"), (GROUP_KEY, b"\xff\xff")],
)
def test_a_record_that_makes_no_sense_is_told_apart(key: bytes, value: bytes | None) -> None:
    bench = Bench()
    with pytest.raises(WireError):
        bench.shard.replay(Record(key, value), 0)
    assert bench.shard.contents() == Bench().shard.contents()


def test_the_state_is_what_the_records_say_also_of_offsets_that_say_when_they_expire() -> None:
    bench = Bench()
    commit(bench, 7, retention_ms=DAY_MS, version=4)
    assert bench.shard.contents() == bench.another().shard.contents()


def test_an_offset_that_names_no_topic_id_is_forgotten_with_its_topic() -> None:
    bench = Bench()
    commit(bench, 7, retention_ms=DAY_MS, version=4)
    del bench.topic_ids["t"]
    bench.shard.expire()
    assert bench.another().shard.contents() == Bench().shard.contents()


# --- what cannot be written is undone ---------------------------------------------------------------------------------


def test_a_deletion_that_cannot_be_written_gives_back_the_generation() -> None:
    bench = Bench()
    member_id, *_ = bench.stable(1)
    bench.leave(member_id)
    before = bench.group.generation
    bench.commits = False
    told: list[dict[str, ErrorCode]] = []
    bench.shard.delete(["g"], told.append)
    bench.join()  # in the same turn: a new group of that name
    bench.fail()
    assert told == [{"g": ErrorCode.KAFKA_STORAGE_ERROR}]
    assert bench.group.generation == before
    assert bench.shard.contents() == bench.another().shard.contents()


def test_all_that_was_decided_upon_what_cannot_be_written_is_undone() -> None:
    bench = Bench()
    commit(bench, 1)
    before = bench.another().shard.contents()
    bench.commits = False
    commit(bench, 2)
    bench.shard.delete(["g"], lambda _: None)
    commit(bench, 3)
    bench.fail()
    assert bench.shard.contents() == before == bench.another().shard.contents()
    bench.commits = True
    assert offset(bench) == (1, 0)


# --- groups come to their end -----------------------------------------------------------------------------------------


def test_a_group_with_more_offsets_than_a_batch_holds_can_be_deleted() -> None:
    bench = Bench()
    for partition in range(1_500):
        commit(bench, 1, partition=partition)
    bench.written.clear()
    told: list[dict[str, ErrorCode]] = []
    bench.shard.delete(["g"], told.append)
    assert told == [{"g": ErrorCode.NONE}]
    assert max(bench.written) <= endings.PIECE_RECORDS_MAX
    assert bench.another().shard.contents() == Bench().shard.contents()


def test_a_deletion_that_was_written_in_part_is_refused() -> None:
    bench = Bench()
    for partition in range(1_500):
        commit(bench, 1, partition=partition)
    bench.commits = False
    told: list[dict[str, ErrorCode]] = []
    bench.shard.delete(["g"], told.append)
    bench.fail()
    assert told == [{"g": ErrorCode.KAFKA_STORAGE_ERROR}]


def test_offsets_with_long_names_expire_in_pieces_that_fit_in_a_batch() -> None:
    bench = Bench()
    name = "n" * 20_000
    for partition in range(20):
        commit(bench, 1, partition=partition, group=name)
    bench.written.clear()
    bench.wait(8 * DAY_MS)
    bench.shard.expire()
    assert max(bench.written) * 20_000 <= 2 * endings.PIECE_BYTES_MAX
    assert bench.another().shard.contents() == Bench().shard.contents()


def test_many_groups_expire_a_few_a_turn_and_none_is_left() -> None:
    bench = Bench()
    for number in range(2_500):
        commit(bench, 1, group=f"g{number}")
    bench.wait(8 * DAY_MS)
    bench.shard.expire()
    assert len(list(bench.shard.groups())) >= 2_500 - endings.GROUPS_A_TURN
    bench.wait(1_000)
    assert not list(bench.shard.groups())
    assert bench.reminders == 0


def test_topics_that_are_deleted_while_groups_expire_are_looked_for_too() -> None:
    bench = Bench()
    for number in range(2_500):
        commit(bench, 1, group=f"g{number}")
    bench.shard.expire()
    del bench.topic_ids["t"]
    bench.shard.expire()
    bench.wait(1_000)
    assert bench.another().shard.contents() == Bench().shard.contents()


def test_a_group_that_nothing_was_written_of_is_forgotten_without_a_record() -> None:
    bench = Bench()
    commit(bench, 1, topic="nix")
    assert bench.group is not None
    bench.shard.expire()
    assert bench.group is None
    assert not bench.log


# --- another coordinator ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_ms", [0, -1])
def test_members_whose_records_have_no_session_are_not_kept_for_ever(session_ms: int) -> None:
    bench = Bench()
    group = ClassicGroup("g", bench.time_ms)
    group.add(Member("m", None, "c", "/h", -1, session_ms, [("range", b"")]), "consumer")
    group.generation, group.protocol = 3, "range"
    bench.log.append(group_record(group, {}))
    other = bench.another()
    other.wait(1_000)
    assert not other.group.members
    assert other.group.generation == 4
    assert other.reminders == 0
