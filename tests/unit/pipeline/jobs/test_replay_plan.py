"""A replay's chunks share its rows out: each row is in one of them, and what was planned once is sent, however often it is started."""

from dataclasses import replace
from random import Random

import pytest

from ottla.pipeline.jobs.replay_plan import (
    Extent,
    Plan,
    PlanError,
    Progress,
    chunks_by_column,
    chunks_by_offset,
    plan_of,
    quoted,
    rows_a_chunk,
)

WORDS = {"topic": "t", "where": None}
PLAN = Plan("replay-t-1", WORDS, ("a", "b"), 10, 2, ("true", "x < 'é'"))


def holds(condition: str, topic: str, partition: int, offset: int) -> bool:
    code = condition.replace(" AND ", " and ").replace(" OR ", " or ").replace(" = ", " == ").replace("`", "")
    return bool(eval(code, {"topic": topic, "partition": partition, "offset": offset}))


@pytest.mark.parametrize("seed", range(10))
def test_each_offset_is_in_one_chunk(seed: int) -> None:
    random = Random(seed)
    extents = []
    for partition in range(random.randint(1, 5)):
        first = random.randrange(100)
        last = first + random.randrange(60)
        extents.append(Extent("it's", partition, first, last, random.randint(1, last + 1 - first)))
    chunks = chunks_by_offset(extents, random.randint(1, 50))
    for each in extents:
        for offset in range(each.first, each.last + 1):
            assert sum(holds(chunk, "it's", each.partition, offset) for chunk in chunks) == 1
        assert not any(holds(chunk, "it's", each.partition, each.first - 1) for chunk in chunks)
        assert not any(holds(chunk, "it's", each.partition, each.last + 1) for chunk in chunks)


def test_partitions_go_on_side_by_side() -> None:
    chunks = chunks_by_offset([Extent("", 0, 0, 99, 100), Extent("", 1, 1_000, 1_009, 10)], 11)
    assert len(chunks) == 10
    assert all("`partition` = 0" in chunk and "`partition` = 1" in chunk for chunk in chunks)


def test_chunks_of_a_column_share_out_every_value() -> None:
    chunks = chunks_by_column("x", ["3", "3", "7"])
    for value in range(12):
        assert sum(eval(chunk.replace("AND", "and"), {"x": value}) for chunk in chunks) == 1
    assert chunks_by_column("x", []) == ["true"]


def test_a_rate_makes_chunks_of_two_seconds() -> None:
    assert rows_a_chunk(500_000, None) == 500_000
    assert rows_a_chunk(500_000, 1_000) == 2_000
    assert rows_a_chunk(500_000, 1e9) == 500_000
    assert rows_a_chunk(500_000, 0.1) == 1


def test_a_plan_comes_back_as_it_was_written() -> None:
    assert plan_of(PLAN.text(), WORDS) == PLAN


def test_a_plan_of_another_replay_is_refused_with_what_differs() -> None:
    with pytest.raises(PlanError, match="topic was t, and is u"):
        plan_of(PLAN.text(), WORDS | {"topic": "u"})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}', replace(PLAN, words={}).text()[:-20]])
def test_a_plan_that_is_torn_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        plan_of(text, WORDS)


def test_progress_counts_chunks() -> None:
    assert Progress(None).done == Progress("torn").done == 0
    progress = Progress("3\n")
    progress.done += 1
    assert Progress(progress.text()).done == 4


def test_texts_become_literals() -> None:
    assert quoted("it's a \\") == "'it\\'s a \\\\'"
