"""What was asked and has not been answered: appends, changes of voters, requests of other nodes.

Each ends, once, and truly: "committed" only for what is, an error otherwise. A process that dies ends what waited for it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.quorum.raft.instructions import CommitAdvanced, LeaderChanged
from ottla.quorum.raft.messages import Request, Response, VoterChangeResponse
from ottla.quorum.raft.state import RaftState
from ottla.runtime.errors import ErrorCode
from ottla.testing.raft.invariants import InvariantViolation
from ottla.testing.raft.memory import Entry


class Append(NamedTuple):
    """Records that the application appended at ``base`` as leader of ``epoch``."""

    since_us: int
    epoch: int
    base: int
    payloads: tuple[bytes, ...]


class Token(NamedTuple):
    """A request as it arrived: ``number`` tells it from its duplicates. ``source`` 0: an administrator, who is no node."""

    number: int
    source: int
    life: int
    asked: Any


class Waiting(NamedTuple):
    since_us: int
    node: int
    request: Request


class Promises:
    """Of all nodes. ``appends`` and ``changes`` count how they ended."""

    def __init__(self) -> None:
        self.appends = {"committed": 0, "lost leadership": 0, "process died": 0}
        self.changes = dict[ErrorCode, int]()
        self._appends: dict[int, deque[Append]] = {}
        self._requests: dict[int, Waiting] = {}
        self._numbers = 0

    # --- appends ------------------------------------------------------------------------------------------------------

    def appended(self, node: int, append: Append) -> None:
        self._appends.setdefault(node, deque()).append(append)

    def told(self, node: int, news: CommitAdvanced | LeaderChanged, committed: list[Entry]) -> None:
        """What the application concludes: below the high watermark of the epoch that it leads, its appends are committed."""
        waiting = self._appends.get(node)
        if not waiting:
            return
        if isinstance(news, LeaderChanged):
            if news.leader_id != node or news.epoch != waiting[0].epoch:
                self._end_all(node, "lost leadership")
            return
        while waiting and waiting[0].base + len(waiting[0].payloads) <= news.high_watermark:
            append = waiting.popleft()
            self.appends["committed"] += 1
            for offset, payload in enumerate(append.payloads, append.base):
                if committed[offset] != Entry(append.epoch, payload):
                    story = f"node {node} acknowledged {payload!r} at {offset}, where {committed[offset]} is committed"
                    raise InvariantViolation("acknowledged means committed", story)

    def _end_all(self, node: int, outcome: str) -> None:
        self.appends[outcome] += len(self._appends.pop(node, ()))

    # --- requests -----------------------------------------------------------------------------------------------------

    def arrived(self, now_us: int, node: int, source: int, life: int, asked: Any, request: Request) -> Token:
        self._numbers += 1
        self._requests[self._numbers] = Waiting(now_us, node, request)
        return Token(self._numbers, source, life, asked)

    def answered(self, token: Token, response: Response, state: RaftState) -> None:
        """Only a request that waits is answered, and a change of voters is confirmed only when it is committed."""
        waiting = self._requests.pop(token.number, None)
        if waiting is None:
            raise InvariantViolation("one answer", f"node {state.key.id} answers again: {response}")
        if isinstance(response, VoterChangeResponse):
            self.changes[response.error] = self.changes.get(response.error, 0) + 1
            if response.error is ErrorCode.NONE and state.voters.latest_offset >= state.high_watermark:
                raise InvariantViolation("acknowledged means committed", f"node {state.key.id}: {waiting.request}")

    # --- the end ------------------------------------------------------------------------------------------------------

    def process_died(self, node: int) -> None:
        self._end_all(node, "process died")
        self._requests = {number: other for number, other in self._requests.items() if other.node != node}

    def requests(self) -> Iterable[Waiting]:
        """Those that arrived and are not answered."""
        return self._requests.values()

    def open(self, before_us: int) -> list[Append | Waiting]:
        """What was asked before then and has not ended."""
        open_ones: list[Append | Waiting] = [append for waiting in self._appends.values() for append in waiting]
        open_ones += self._requests.values()
        return [promise for promise in open_ones if promise.since_us < before_us]
