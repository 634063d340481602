"""Chunks of seeds run on processes of their own."""

import gc
import multiprocessing
import os
from collections.abc import Sequence
from typing import NamedTuple, Self

import pytest

from ottla.testing.seed_search import CHUNK, WARMING, Failed, chunks_of, run_many


class Sum(NamedTuple):
    seeds: int
    where: tuple[int, ...] = ()

    def plus(self, other: Self) -> Self:
        return self._replace(seeds=self.seeds + other.seeds, where=self.where + other.where)


HERE = os.getpid()
DEADLY, ITS_CHUNK = CHUNK + 5, f"{CHUNK + 1} to {2 * CHUNK}"


def doubled(seeds: Sequence[int]) -> tuple[Sum, list[Failed]]:
    assert gc.isenabled() is (os.getpid() == HERE)
    return Sum(len(seeds), (os.getpid(),)), [Failed(seed, "even", "") for seed in seeds if seed % 2 == 0]


def dies(seeds: Sequence[int]) -> tuple[Sum, list[Failed]]:
    if DEADLY in seeds:
        os._exit(3)
    return Sum(len(seeds)), []


def test_each_chunk_has_a_process_but_for_the_seeds_that_warm_this_one_and_all_are_told() -> None:
    count = 3 * CHUNK + 5
    told = list(run_many(doubled, chunks_of(1, count), 2))
    assert sum(totals.seeds for totals, _ in told) == count
    assert sorted(each.seed for _, failed in told for each in failed) == list(range(2, count + 1, 2))
    assert len({process for totals, _ in told for process in totals.where}) == 5
    assert told[0][0] == Sum(WARMING, (HERE,))
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("count", [0, 1, WARMING, WARMING + 1])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_few_seeds_are_told_once_each(count: int, jobs: int) -> None:
    told = list(
        run_many(lambda seeds: (Sum(len(seeds)), [Failed(seed, "", "") for seed in seeds]), chunks_of(1, count), jobs)
    )
    assert sum(totals.seeds for totals, _ in told) == count
    assert [each.seed for _, failed in told for each in failed] == list(range(1, count + 1))
    assert all(totals.seeds for totals, _ in told)


def test_a_process_that_dies_is_told_with_its_seeds() -> None:
    with pytest.raises(RuntimeError, match=f"the process for seeds {ITS_CHUNK} ended with 3"):
        list(run_many(dies, chunks_of(1, 10 * CHUNK), 2))
    assert not multiprocessing.active_children()


def test_nobody_goes_on_when_nobody_asks_for_more() -> None:
    told = run_many(doubled, chunks_of(1, None, minutes=1), 2)
    next(told)
    next(told)
    told.close()  # type: ignore[attr-defined]  # it is a generator
    assert not multiprocessing.active_children()


def test_a_death_among_several_answers_leaves_no_process() -> None:
    for _ in range(5):
        with pytest.raises(RuntimeError, match=ITS_CHUNK):
            list(run_many(dies, chunks_of(1, 10 * CHUNK), 8))
        assert not multiprocessing.active_children()
