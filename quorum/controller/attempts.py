"""Recognises the attempts of one call: a caller whose connection broke asks again, and must not be served twice."""

from collections.abc import Iterable

from ottla.proto import controller_pb2 as rpc
from ottla.quorum.causes import request_id_of
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.records import decode

_ANSWERS_MAX = 500
ANSWERS_BYTES_MAX = 16 << 20
"""As they are sent; in memory they take two or three times as much. One that names half a million partitions has 15 MB."""
COMMITTED_MAX = 5000


class Attempts:
    """What was answered in this leadership, and which requests' records were committed lately, by whomever."""

    def __init__(self) -> None:
        self._answers: dict[bytes, tuple[int, rpc.ControllerResponse, int]] = {}
        self._bytes = 0  # the sizes of the answers, which stand beside them
        self._committed: dict[bytes, None] = {}

    def answer(self, request_id: bytes) -> tuple[int, rpc.ControllerResponse] | None:
        """A copy of the answer to an earlier attempt, and the offset that lets it go."""
        known = self._answers.get(request_id)
        if known is None:
            return None
        offset, response, _ = known
        copy = rpc.ControllerResponse()
        copy.CopyFrom(response)
        return offset, copy

    def keep(self, request_id: bytes, offset: int, response: rpc.ControllerResponse) -> None:
        """``response`` to a request that changed something, or took many pieces; the oldest ones are forgotten for it."""
        if not request_id:
            return
        self._forget(request_id)
        size = response.ByteSize()
        self._answers[request_id] = offset, response, size
        self._bytes += size
        while len(self._answers) > _ANSWERS_MAX or (self._bytes > ANSWERS_BYTES_MAX and len(self._answers) > 1):
            self._forget(next(iter(self._answers)))

    def _forget(self, request_id: bytes) -> None:
        known = self._answers.pop(request_id, None)
        if known is not None:
            self._bytes -= known[2]

    def was_committed(self, request_id: bytes) -> bool:
        return request_id in self._committed

    def committed(self, cause: str) -> None:
        """A batch with this cause is committed."""
        request_id = request_id_of(cause)
        if request_id:
            self._committed[request_id] = None
            if len(self._committed) > COMMITTED_MAX:
                del self._committed[next(iter(self._committed))]

    def recall(self, batches: Iterable[CommittedBatch]) -> None:
        """These were committed in an earlier life of this process, whose end may have kept an answer from whoever asks again."""
        for cause in _in_effect(batches):
            self.committed(cause)

    def forget_answers(self) -> None:
        """The leadership is over, and what was not committed with it."""
        self._answers.clear()
        self._bytes = 0


def _in_effect(batches: Iterable[CommittedBatch]) -> list[str]:
    """The causes of what was not taken back. The first batches may be of a transaction that began before them; the last ones are of none
    that is open."""
    causes: list[str] = []
    begun = 0
    for batch in batches:
        kind = decode(batch.records[0]).WhichOneof("body") if batch.records else None
        if kind == "begin_transaction":
            begun = len(causes)
        if kind == "abort_transaction":
            del causes[begun:]
        else:
            causes.append(batch.cause)
    return causes
