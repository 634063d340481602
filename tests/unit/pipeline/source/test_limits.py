"""How far one trigger goes."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.source.limits import at_most_bytes, at_most_offsets, available, is_enough, shared

A, B, C = ("t", 0), ("t", 1), ("u", 0)
SIZES = st.dictionaries(st.sampled_from([("t", number) for number in range(9)]), st.integers(1, 10**9), min_size=1)


def test_partitions_get_their_share_of_what_they_have() -> None:
    assert at_most_offsets({A: 0, B: 100}, {A: 300, B: 200, C: 7}, 40) == {A: 30, B: 110, C: 7}


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    assert at_most_offsets({A: 0}, {A: 3}, 40) == {A: 3}
    assert at_most_bytes({A: 0}, {A: 3}, 40, {A: 10.0}) == {A: 3}


def test_bytes_are_shared_by_what_an_offset_takes() -> None:
    assert at_most_bytes({A: 0, B: 0}, {A: 100, B: 100}, 5_000, {A: 10.0, B: 90.0}) == {A: 50, B: 50}


def test_a_record_larger_than_the_limit_is_read_all_the_same() -> None:
    assert at_most_bytes({A: 0, B: 0}, {A: 2, B: 5}, 10, {A: 1e6, B: 1e6}) == {A: 0, B: 1}


@given(SIZES, st.integers(1, 10**9))
def test_shares_are_all_of_the_limit_and_no_more_than_there_is(sizes: dict[tuple[str, int], int], most: int) -> None:
    shares = shared(sizes, most)

    assert sum(shares.values()) == min(most, sum(sizes.values()))
    assert all(0 <= shares[which] <= size for which, size in sizes.items())


def test_a_little_is_read_beside_a_lot_that_grows() -> None:
    """As with Spark's connector: it does not wait until the rest is read."""
    start, end = {A: 0, B: 0, C: 0}, {A: 1_000_000, B: 1, C: 2}
    by_offsets, by_bytes = start, start
    for _ in range(3):
        by_offsets = at_most_offsets(by_offsets, end, 1000)
        by_bytes = at_most_bytes(by_bytes, end, 100_000, dict.fromkeys(end, 100.0))
        end = end | {A: end[A] + 1000}

    assert by_offsets == {A: 2997, B: 1, C: 2}
    assert (by_bytes[B], by_bytes[C]) == (1, 2)


def test_a_little_is_read_beside_others_that_have_little_more_each_time() -> None:
    start, end = {A: 0, B: 0, C: 0}, {A: 1_000_000, B: 1, C: 5}
    by_offsets, by_bytes = start, start
    for _ in range(3):
        by_offsets = at_most_offsets(by_offsets, end, 1000)
        by_bytes = at_most_bytes(by_bytes, end, 100_000, dict.fromkeys(end, 100.0))
        end = end | {C: end[C] + 1}

    assert by_offsets == {A: 2996, B: 1, C: 3}
    assert (by_bytes[B], by_bytes[C]) == (1, 3)


def test_no_more_than_twice_the_bytes_are_read_for_those_that_have_little() -> None:
    start, end = dict.fromkeys((A, B, C), 0), {A: 1_000_000, B: 1, C: 2}
    assert at_most_bytes(start, end, 1_000, {A: 1.0, B: 900.0, C: 1_100.0}) == {A: 996, B: 0, C: 1}


def test_what_went_back_is_not_available() -> None:
    assert available({A: 5, B: 1}, {A: 3, B: 4, C: 9}) == {B: 3}


def test_a_trigger_waits_for_enough_but_not_longer_than_it_may_nor_at_the_end() -> None:
    assert is_enough(5, None, 0, 1000, ends=False)
    assert not is_enough(5, 6, 999, 1000, ends=False)
    assert is_enough(6, 6, 0, 1000, ends=False)
    assert is_enough(5, 6, 1000, 1000, ends=False)
    assert is_enough(5, 6, 0, 1000, ends=True)
