"""Answers that leave when what they rest on is committed."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.rpc.transport import Reply


class _Waiting(NamedTuple):
    offset: int
    reply: Reply
    response: rpc.ControllerResponse


class WaitingAnswers:
    """Answers in the order of their offsets, which is that of the decisions."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self.committed_offset = -1

    def __len__(self) -> int:
        return len(self._waiting)

    def answer_at(self, offset: int, reply: Reply, response: rpc.ControllerResponse) -> None:
        """Answers once ``offset`` is committed, which it may be already."""
        if offset <= self.committed_offset:
            reply(response)
        else:
            self._waiting.append(_Waiting(offset, reply, response))

    def committed(self, offset: int) -> None:
        self.committed_offset = offset
        waiting = self._waiting
        while waiting and waiting[0].offset <= offset:
            done = waiting.popleft()
            done.reply(done.response)

    def refuse(self, response: Callable[[], rpc.ControllerResponse]) -> None:
        """Answers all with that instead."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.reply(response())
