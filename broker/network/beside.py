"""What one large request needs that would hold the loop: to be read, and its answer to be written down. Both are done on a thread.

The interpreter lets the loop in every few milliseconds, so the others wait for those instead of for all of it (2 MiB of the smallest entries:
40 ms where it was 300, docs/benchmarks.md). What the handler does in between stays on the loop.

Order is kept: while a request of a connection is being read, none that came behind it is taken (`reading.BESIDE`), and its answer has its
place in the queue from the start. Fetches have a thread of their own: one that names thousands of partitions is most likely a follower's.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ottla.broker.wire.apis import FETCH
from ottla.runtime.threads import LARGE_FETCHES, LARGE_REQUESTS, Threads

LARGE_BYTES = 64 << 10
"""From here on a request is read beside the loop: 3 to 10 ms of it, as its entries are small. To change threads costs 0.1 ms."""
LARGE_FETCH_BYTES = 256 << 10
"""The same of a Fetch, which is read three times as fast, and may be a follower's."""

T = TypeVar("T")


class Beside:
    """The threads for the large requests of one loop: no more than one of a kind, for they share the interpreter with the loop, and who asks much
    waits for himself."""

    def __init__(self) -> None:
        self._requests, self._fetches = Threads(LARGE_REQUESTS), Threads(LARGE_FETCHES)

    def run(self, api_key: int, work: Callable[[], T], then: Callable[[Callable[[], T]], None]) -> None:
        """Does ``work`` of a request there. ``then`` is called on the loop with what gives its result, or raises what it raised."""
        threads = self._fetches if api_key == FETCH else self._requests
        threads.run(work).add_done_callback(partial(_tell, then))

    def close(self) -> None:
        """What is under way ends, and tells nobody who has closed meanwhile."""
        self._requests.close()
        self._fetches.close()


def _tell(then: Callable[[Callable[[], T]], None], done: "asyncio.Future[T]") -> None:
    if not done.cancelled():
        done.exception()  # seen, whether or not anybody still wants to know
        then(done.result)
