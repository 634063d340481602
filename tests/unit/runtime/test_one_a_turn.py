"""One piece of long work a turn of the loop, whoever's it is."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from ottla.runtime.one_a_turn import OneATurn


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(test())


@on_a_loop
async def test_two_works_do_one_piece_a_turn_and_the_first_is_done_first() -> None:
    turns = OneATurn()
    done: list[str] = []

    def work(name: str) -> Iterator[None]:
        for number in range(3):
            done.append(f"{name}{number}")
            yield

    turns.go_through(work("a"))
    turns.go_through(work("b"))
    for count in range(1, 4):
        await asyncio.sleep(0)
        assert len(done) == count
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["a0", "a1", "a2", "b0", "b1", "b2"]


@on_a_loop
async def test_work_that_fails_keeps_nobody_elses_from_being_done() -> None:
    turns = OneATurn()
    done: list[str] = []
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

    def fails() -> Iterator[None]:
        yield
        raise RuntimeError("a mistake")

    turns.go_through(fails())
    turns.plan(lambda: done.append("other"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["other"]
    assert len(failures) == 1


@on_a_loop
async def test_what_is_planned_from_outside_waits_behind_work_that_goes_on() -> None:
    turns = OneATurn()
    done: list[str] = []

    def work() -> Iterator[None]:
        for number in range(3):
            done.append(str(number))
            yield

    turns.go_through(work())
    await asyncio.sleep(0)
    turns.plan(lambda: done.append("later"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["0", "1", "2", "later"]


@on_a_loop
async def test_what_weighs_less_comes_first_and_what_goes_on_is_not_put_off() -> None:
    turns = OneATurn()
    done: list[str] = []

    def work(name: str) -> None:
        done.append(name)
        if done.count(name) < 3:
            turns.plan(partial(work, name))

    for name, weight in (("large", 300), ("small", 1), ("middle", 20), ("small too", 1)):
        turns.plan(partial(work, name), weight)
    for _ in range(4):
        await asyncio.sleep(0)
    turns.plan(partial(work, "later"), 0)
    for _ in range(20):
        await asyncio.sleep(0)
    order = ["small", "small too", "later", "middle", "large"]
    assert done == [name for name in order for _ in range(3)]
