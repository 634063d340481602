"""The leader-epoch cache against kraft.md 4.9."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.epochs import UNDEFINED, EpochEntries, LeaderEpochCache

THREE = ((1, 0), (3, 10), (4, 25))


def cache_of(entries: EpochEntries = THREE) -> LeaderEpochCache:
    return LeaderEpochCache(entries)


def test_the_latest_epoch_ends_at_the_log_end() -> None:
    assert cache_of().end_offset_for(4, 40) == (4, 40)


def test_an_older_epoch_ends_where_the_next_began() -> None:
    assert cache_of().end_offset_for(3, 40) == (3, 25)


def test_an_unknown_epoch_in_between_answers_the_one_below_it() -> None:
    assert cache_of().end_offset_for(2, 40) == (1, 10)


def test_an_epoch_above_all_known_is_undefined() -> None:
    assert cache_of().end_offset_for(5, 40) == UNDEFINED
    assert cache_of(()).end_offset_for(0, 40) == UNDEFINED
    assert cache_of().end_offset_for(-1, 40) == UNDEFINED
    assert cache_of(()).end_offset_for(-1, 40) == UNDEFINED


def test_an_epoch_below_the_first_ends_at_the_first_start() -> None:
    assert cache_of(((3, 10),)).end_offset_for(2, 40) == (2, 10)


def test_assigning_the_current_epoch_again_changes_nothing() -> None:
    cache = cache_of()
    cache.assign(4, 25)
    cache.assign(4, 30)
    assert (cache.entries(), cache.changed) == (THREE, False)


def test_a_new_epoch_is_told_once() -> None:
    cache = cache_of()
    cache.assign(6, 30)
    assert (cache.entries(), cache.changed) == ((*THREE, (6, 30)), True)
    assert cache.latest_epoch == 6


def test_an_epoch_that_begins_earlier_than_known_moves_down() -> None:
    cache = cache_of()
    cache.assign(4, 20)
    assert cache.entries() == ((1, 0), (3, 10), (4, 20))


def test_a_new_epoch_drops_entries_that_begin_at_or_after_it() -> None:
    cache = cache_of()
    cache.assign(5, 10)
    assert cache.entries() == ((1, 0), (5, 10))


def test_a_lower_epoch_drops_the_higher_ones_it_contradicts() -> None:
    cache = cache_of()
    cache.assign(2, 30)
    assert cache.entries() == ((1, 0), (2, 30))


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_refused(epoch: int, offset: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        cache_of().assign(epoch, offset)


def test_truncation_from_the_end_forgets_epochs_that_began_there() -> None:
    cache = cache_of()
    cache.truncate_from_end(26)
    assert not cache.changed
    cache.truncate_from_end(25)
    assert cache.entries() == ((1, 0), (3, 10))
    assert cache.latest_epoch == 3
    assert cache.changed


def test_truncation_from_the_start_keeps_the_covering_epoch_moved_up() -> None:
    cache = cache_of()
    cache.truncate_from_start(0)
    assert not cache.changed
    cache.truncate_from_start(12)
    assert cache.entries() == ((3, 12), (4, 25))
    cache.truncate_from_start(25)
    assert cache.entries() == ((4, 25),)
    cache.truncate_from_start(99)
    assert cache.entries() == ((4, 99),)


def test_truncation_before_the_first_entry_changes_nothing() -> None:
    cache = cache_of(((3, 10),))
    cache.truncate_from_start(5)
    assert (cache.entries(), cache.changed) == (((3, 10),), False)


def test_clearing_forgets_everything_and_tells_once() -> None:
    cache = cache_of()
    cache.clear()
    cache.clear()
    assert (cache.entries(), cache.latest_epoch, cache.changed) == ((), -1, True)


def test_the_epoch_of_an_offset_is_the_one_that_covers_it() -> None:
    cache = cache_of(((1, 5), (3, 10)))
    assert [cache.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.integers(0, 8), st.integers(0, 30)),
        st.tuples(st.just("end"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("start"), st.integers(0, 30), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_epochs_and_offsets_rise_strictly_after_any_history(steps: list[tuple[str, int, int]]) -> None:
    cache = LeaderEpochCache()
    for step, first, second in steps:
        if step == "assign":
            cache.assign(first, second)
        elif step == "end":
            cache.truncate_from_end(first)
        else:
            cache.truncate_from_start(first)
        entries = cache.entries()
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))
        assert cache.latest_epoch == (entries[-1][0] if entries else -1)
        assert cache.earliest_epoch == (entries[0][0] if entries else -1)
