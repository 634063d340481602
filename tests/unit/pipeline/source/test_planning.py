"""Which task reads what."""

import random

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.source.planning import (
    Sample,
    Task,
    batch_tasks,
    cut_by_bytes,
    cut_evenly,
    estimated_bytes,
    sample_points,
    size,
    stream_tasks,
)
from ottla.pipeline.wire.reading import Range


def ranges(*sizes: int) -> list[Range]:
    return [Range("t", number, 100, 100 + count) for number, count in enumerate(sizes)]


def spans(tasks: list[Task]) -> list[list[tuple[int, int, int]]]:
    return [[(each.partition, each.start, each.end) for each in task] for task in tasks]


def test_a_few_partitions_are_a_task_each() -> None:
    tasks = stream_tasks(ranges(500, 0, 700), least=None, most=None, records_max=None)

    assert spans(tasks) == [[(0, 100, 600)], [(2, 100, 800)]]


def test_a_handful_of_records_is_one_task_unless_more_are_asked_for() -> None:
    one = stream_tasks(ranges(5, 0, 7), least=None, most=None, records_max=None)
    two = stream_tasks(ranges(5, 0, 7), least=2, most=None, records_max=None)

    assert spans(one) == [[(0, 100, 105), (2, 100, 107)]]
    assert spans(two) == [[(0, 100, 105)], [(2, 100, 107)]]


def test_many_small_partitions_share_tasks_and_many_large_ones_do_not() -> None:
    small = stream_tasks(ranges(*[20] * 64), least=None, most=None, records_max=None)
    large = stream_tasks(ranges(*[50_000] * 64), least=None, most=None, records_max=None)

    assert (len(small), max(map(len, small))) == (8, 8)
    assert len(large) == 64


def test_tasks_are_at_most_so_many_and_of_about_the_same_size() -> None:
    tasks = stream_tasks(ranges(90, 30, 30, 30), least=None, most=2, records_max=None)

    assert [sum(map(size, task)) for task in tasks] == [90, 90]


def test_partitions_are_cut_until_there_are_as_many_as_asked_for() -> None:
    tasks = stream_tasks(ranges(300, 100), least=4, most=None, records_max=None)

    assert spans(tasks) == [[(0, 100, 200)], [(0, 200, 300)], [(0, 300, 400)], [(1, 100, 200)]]


def test_no_task_has_more_records_than_it_may() -> None:
    tasks = stream_tasks(ranges(25), least=None, most=None, records_max=10)

    assert [sum(map(size, task)) for task in tasks] == [8, 8, 9]


@given(
    st.lists(st.integers(0, 10**6), max_size=40),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 10**6).map(lambda count: max(count, 10**5)),
    st.randoms(use_true_random=False),
)
def test_tasks_read_everything_once_and_are_the_same_whatever_the_order(
    sizes: list[int], least: int | None, most: int | None, records_max: int | None, rng: random.Random
) -> None:
    asked = ranges(*sizes)
    tasks = stream_tasks(asked, least=least, most=most, records_max=records_max)
    rng.shuffle(asked)

    assert tasks == stream_tasks(asked, least=least, most=most, records_max=records_max)
    assert most is None or len(tasks) <= most
    pieces = sorted(piece for task in tasks for piece in task)
    for each in asked:
        mine = [piece for piece in pieces if piece.partition == each.partition]
        assert [piece.start for piece in mine] == ([each.start, *(piece.end for piece in mine[:-1])] if mine else [])
        assert sum(map(size, mine)) == size(each)


def test_a_range_of_fewer_offsets_than_pieces_is_a_piece_an_offset() -> None:
    assert [(each.start, each.end) for each in cut_evenly(Range("t", 0, 5, 7), 9)] == [(5, 6), (6, 7)]


def even(each: Range, bytes_each: int, count: int = 16) -> list[Sample]:
    return [Sample(offset, offset + 10, 10 * bytes_each) for offset in sample_points(each, count)]


def test_a_range_is_cut_into_pieces_of_as_many_bytes() -> None:
    each = Range("t", 0, 0, 1_000_000)

    assert estimated_bytes(each, even(each, 100)) == 100_000_000
    pieces = cut_by_bytes(each, even(each, 100), 25_000_000)
    assert [size(piece) for piece in pieces] == [250_000] * 4
    assert [piece.bytes for piece in pieces] == [25_000_000] * 4


def test_offsets_that_compaction_left_empty_weigh_nothing() -> None:
    each = Range("t", 0, 0, 1_000_000)
    # The first half is compacted to a batch in a thousand offsets, the second is full.
    samples = [Sample(at, at + 10_000 if at < 500_000 else at + 10, 1_000) for at in sample_points(each, 16)]
    pieces = cut_by_bytes(each, samples, estimated_bytes(each, samples) // 2 + 1)

    assert len(pieces) == 2
    assert 740_000 < pieces[0].end < 760_000


@given(
    st.integers(1, 10**7),
    st.integers(1, 10**9),
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 10**5), st.integers(1, 10**7))),
)
def test_whatever_was_seen_the_pieces_are_the_range(
    count: int, task_bytes: int, seen: list[tuple[int, int, int]]
) -> None:
    each = Range("t", 0, 7, 7 + count)
    samples = sorted(Sample(asked, asked + width, weight) for asked, width, weight in seen)
    total = estimated_bytes(each, samples)
    pieces = cut_by_bytes(each, samples, max(task_bytes, total // 500))

    assert (each.start, each.end) == (pieces[0].start, pieces[-1].end)
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
    assert all(size(piece) > 0 for piece in pieces)


def test_a_batch_packs_small_pieces_by_their_bytes() -> None:
    parts = [each._replace(bytes=weight) for each, weight in zip(ranges(*[10] * 20), [900] + [100] * 19, strict=True)]
    tasks = batch_tasks(parts, least=None, most=3, records_max=None, task_bytes=500)

    assert sorted((sum(each.bytes for each in task) for task in tasks), reverse=True) == [1000, 900, 900]
