"""A change that is too large for one turn of the loop, on its way into the log."""

from collections import deque
from collections.abc import Callable, Iterable

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.controller.batches import Batch
from ottla.quorum.rpc.transport import Reply
from ottla.runtime.timers import LoopTimers, Timer


class Series:
    """Appends the batches of one transaction, one a turn: in between, the node votes, fetches and is fetched from. Whoever
    begins it lets nothing come between its records."""

    def __init__(
        self,
        batches: Iterable[Batch],
        append: Callable[[Batch], bool],
        timers: LoopTimers,
        conclude: Callable[[], None],
        reply: Reply,
    ) -> None:
        """``append`` answers False when it could not, after `fail`; ``conclude`` follows the last batch and answers the
        request, unless `fail` did."""
        self._batches = deque(batches)
        self._append = append
        self._timers = timers
        self._conclude = conclude
        self._reply = reply
        self._timer: Timer = timers.call_later_ms(0, self._step)

    def fail(self, response: rpc.ControllerResponse) -> None:
        """Ends it where it is: the next controller aborts the transaction."""
        self._timer.cancel()
        self._reply(response)

    def _step(self) -> None:
        if not self._append(self._batches.popleft()):
            return
        if self._batches:
            self._timer = self._timers.call_later_ms(0, self._step)
        else:
            self._conclude()
