"""Long work that leaves the event loop to others: in pieces of a few milliseconds, or on a thread."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def over_turns(pieces: Iterable[object]) -> None:
    """Goes through ``pieces``, one a turn of the loop. For what is mostly Python: a thread that runs it would take the
    interpreter from the loop for 5 ms each time that the loop lets go of it, and the loop does so for every system call."""
    for _ in pieces:
        await asyncio.sleep(0)


async def on_thread(work: Callable[[], T]) -> T:
    """For what waits for the disk. A caller that is cancelled is told so when the work is done: what it used may be closed then."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
