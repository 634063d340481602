"""Recognises the attempts of one call: a caller whose connection broke asks again, and must not be served twice."""

from typing import TypeVar

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.causes import request_id_of

V = TypeVar("V")

_ANSWERS_MAX = 500
_COMMITTED_MAX = 5000


class Attempts:
    """What was answered in this leadership, and which requests' records were committed lately, by whomever."""

    def __init__(self) -> None:
        self._answers: dict[bytes, tuple[int, rpc.ControllerResponse]] = {}
        self._committed: dict[bytes, None] = {}

    def answer(self, request_id: bytes) -> tuple[int, rpc.ControllerResponse] | None:
        """A copy of the answer to an earlier attempt, and the offset that lets it go."""
        known = self._answers.get(request_id)
        if known is None:
            return None
        offset, response = known
        copy = rpc.ControllerResponse()
        copy.CopyFrom(response)
        return offset, copy

    def keep(self, request_id: bytes, offset: int, response: rpc.ControllerResponse) -> None:
        """``response`` to a request that changed something; the oldest one is forgotten for it."""
        if request_id:
            _add(self._answers, _ANSWERS_MAX, request_id, (offset, response))

    def was_committed(self, request_id: bytes) -> bool:
        return request_id in self._committed

    def committed(self, cause: str) -> None:
        """A batch with this cause is committed."""
        request_id = request_id_of(cause)
        if request_id:
            _add(self._committed, _COMMITTED_MAX, request_id, None)

    def forget_answers(self) -> None:
        """The leadership is over, and what was not committed with it."""
        self._answers.clear()


def _add(entries: dict[bytes, V], limit: int, key: bytes, value: V) -> None:
    entries[key] = value
    if len(entries) > limit:
        del entries[next(iter(entries))]
