"""One part's failure is no other's."""

import asyncio

import pytest

from ottla.runtime.endings import end_each


def test_what_fails_is_told_when_all_are_through() -> None:
    ended: list[int] = []

    async def late(number: int) -> None:
        await asyncio.sleep(0)
        ended.append(number)
        if number == 2:
            raise OSError("the second")

    def broken() -> None:
        raise ValueError("the fourth")

    with pytest.raises(OSError, match="the second"):
        asyncio.run(end_each([lambda: ended.append(1), lambda: late(2), lambda: late(3), broken, lambda: late(5)]))

    assert ended == [1, 2, 3, 5]


def test_who_is_cancelled_does_not_go_on() -> None:
    ended: list[int] = []

    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def stop() -> None:
        await end_each([cancelled, lambda: ended.append(2)])

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stop())

    assert ended == []
