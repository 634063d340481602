"""Answers that take longer than anybody may hold the loop: put together piece by piece, one piece a turn for all of them."""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from typing import Protocol, TypeVar

import msgspec

from ottla.broker.network.request import RequestContext
from ottla.broker.network.response_errors import errors_in
from ottla.broker.wire.apis import APIS
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.primitives import encode_varint
from ottla.runtime.disk import Buffer

HELD_BYTES = 64 << 10
"""What one that goes on holds, roughly: a client that asks for many at once is not read (`answers.py`)."""

PARTITIONS_AS_A_TOPIC = 50
"""So many take as long to write down as a topic's name and list do."""

logger = logging.getLogger(__name__)

Entry = TypeVar("Entry")
Pieces = Generator[None, None, list[Buffer] | None]
"""Does a millisecond's work at most between two yields, and returns the answer; None: that is given by another, now or later."""


def list_in_pieces(
    request: RequestContext, make: Callable[[list[Entry]], msgspec.Struct], batches: Iterable[list[Entry]]
) -> Pieces:
    """An answer that is one list, of entries that come a batch a turn: each is written down with an answer of its own, as ``make`` makes it,
    and they stand one behind the other in the end. The list has to be the answer's last field."""
    write = encoder(type(make([])), request.version)
    is_flexible = APIS[request.api_key].is_flexible(request.version)
    tags = b"\0" if is_flexible else b""
    head = b"".join(write(make([])))
    before = len(head) - len(_count(0, is_flexible)) - len(tags)
    parts, entries = [head[:before]], 0
    for number, batch in enumerate(batches):
        if number:
            yield
        answer = make(batch)
        request.count_errors(errors_in(answer))
        whole = b"".join(write(answer))
        parts.append(whole[before + len(_count(len(batch), is_flexible)) : len(whole) - len(tags)])
        entries += len(batch)
        request.connection.hold(len(parts[-1]))
    request.connection.hold(before - sum(map(len, parts)))
    parts[0] += _count(entries, is_flexible)
    return [*parts, tags] if tags else list(parts)


def batches(entries: Iterable[Entry], work_max: int, work_of: Callable[[Entry], int]) -> Iterator[list[Entry]]:
    """Entries, made as they are asked for, in lists that are so much work to make and to write down."""
    some: list[Entry] = []
    work = 0
    for each in entries:
        some.append(each)
        work += work_of(each)
        if work >= work_max:
            yield some
            some, work = [], 0
    if some:
        yield some


class _Topic(Protocol):
    @property
    def partitions(self) -> Sized: ...


def work_of(topics: Iterable[_Topic]) -> int:
    """What topics with their partitions take to describe, in what a group or a transaction takes without any."""
    return sum(1 + len(each.partitions) // PARTITIONS_AS_A_TOPIC for each in topics)


def _count(entries: int, is_flexible: bool) -> bytes:
    """What stands before so many entries."""
    return encode_varint(entries + 1) if is_flexible else entries.to_bytes(4)


class LongAnswers:
    """Each has its first piece at once, and most have no other. Those that go on do so in the order of their coming."""

    def __init__(self) -> None:
        self._waiting: dict[RequestContext, Pieces] = {}
        self._is_planned = False  # also while all who waited are gone: never twice a turn

    def give(self, request: RequestContext, pieces: Pieces) -> None:
        if _is_done(request, pieces):
            return
        self._waiting[request] = pieces
        request.connection.hold(HELD_BYTES)
        request.on_close(lambda: self._forget(request))
        self._plan()

    def _forget(self, request: RequestContext) -> None:
        pieces = self._waiting.pop(request, None)
        if pieces is not None:
            pieces.close()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_planned = False
        if not self._waiting:
            return
        request, pieces = next(iter(self._waiting.items()))
        try:
            done = _is_done(request, pieces)
        except Exception:
            logger.exception("An answer could not be put together, which is our mistake")
            request.fail_connection("its request could not be handled")
            done = True
        if done:
            self._waiting.pop(request, None)
            request.connection.hold(-HELD_BYTES)
        if self._waiting:
            self._plan()


def _is_done(request: RequestContext, pieces: Pieces) -> bool:
    try:
        next(pieces)
    except StopIteration as done:
        if done.value is not None:
            request.respond(done.value)
        return True
    return False
