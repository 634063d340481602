"""What goes to one partition, in its order: rows that wait, batches with their sequences, the one that is on its way.

No more than one batch of a partition is on its way, so what is sent again keeps its place and its sequence, and brokers know
it if they have it. Nothing here asks anybody.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.pipeline.arrow.encoder import encode
from ottla.pipeline.wire.producer_errors import DeliveryTimeoutError, RecordTooLargeError
from ottla.pipeline.wire.producer_settings import ProducerSettings


class Identity(NamedTuple):
    """Who produces, as brokers know him."""

    producer_id: int
    epoch: int
    transactional: bool


class Columns(NamedTuple):
    """Rows of one partition. Arrow arrays of one length, or None for one that is not there."""

    keys: Any
    values: Any
    headers: Any
    timestamps: Any

    def part(self, start: int, count: int) -> "Columns":
        return Columns(*(column if column is None else column.slice(start, count) for column in self))


class Ready(NamedTuple):
    """An encoded batch, and the rows that it was made of, should it have to be made smaller."""

    data: bytes
    number: int
    sequence: int
    rows: Columns


@dataclass(eq=False)
class Lane:
    topic: str
    partition: int
    settings: ProducerSettings
    identity: Identity
    sequence: int = 0
    waiting: deque[Columns] = field(default_factory=deque)
    encoded: Iterator[Ready] = field(default_factory=lambda: iter(()))
    ready: deque[Ready] = field(default_factory=deque)
    on_its_way: Ready | None = None
    tried_since_s: float | None = None
    attempts: int = 0

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def prepare(self) -> bool:
        """The next batch is there, unless all rows are in batches already."""
        while not self.ready:
            if (batch := next(self.encoded, None)) is not None:
                self.ready.append(batch)
            elif self.waiting:
                self.encoded = self._batches(self.waiting.popleft(), self.settings.batch_bytes, 1 << 30)
            else:
                return False
        return True

    def take(self, now_s: float) -> bytes:
        """The next batch goes on its way."""
        batch = self.ready.popleft()
        if batch.number == 1 and len(batch.data) > self.settings.request_bytes_max:
            raise RecordTooLargeError(
                f"{self.name}: a record makes {len(batch.data)} bytes, and kafka.max.request.size is {self.settings.request_bytes_max}"
            )
        self.on_its_way = batch
        self.tried_since_s = now_s if self.tried_since_s is None else self.tried_since_s
        return batch.data

    def arrived(self) -> None:
        self.on_its_way, self.tried_since_s, self.attempts = None, None, 0

    def again(self, now_s: float, why: str) -> None:
        """As it was, and before everything else. Raises DeliveryTimeoutError."""
        assert self.on_its_way is not None
        assert self.tried_since_s is not None
        self.ready.appendleft(self.on_its_way)
        self.on_its_way = None
        self.attempts += 1
        self.give_up_at(now_s, why)

    def give_up_at(self, now_s: float, why: str) -> None:
        """Also while it has no leader, and nothing was sent."""
        self.tried_since_s = now_s if self.tried_since_s is None else self.tried_since_s
        limit_ms = self.settings.delivery_timeout_ms
        if now_s - self.tried_since_s >= limit_ms / 1000:
            raise DeliveryTimeoutError(f"{self.name}: not taken in kafka.delivery.timeout.ms={limit_ms}; last: {why}")

    def halve(self) -> None:
        """The broker took nothing of it, so its rows may come in smaller batches from the same sequence on."""
        batch = self.on_its_way
        assert batch is not None
        if batch.number == 1:
            raise RecordTooLargeError(
                f"{self.name}: a record makes {len(batch.data)} bytes, and the topic's max.message.bytes is smaller"
            )
        halves = self._encode(batch.rows, self.settings.batch_bytes, (batch.number + 1) // 2, batch.sequence)
        self.ready.extendleft(reversed(list(halves)))
        self.on_its_way = None

    def _batches(self, rows: Columns, batch_bytes: int, records_max: int) -> Iterator[Ready]:
        for batch in self._encode(rows, min(batch_bytes, self.settings.request_bytes_max), records_max, self.sequence):
            self.sequence = (batch.sequence + batch.number) % (1 << 31)
            yield batch

    def _encode(self, rows: Columns, batch_bytes: int, records_max: int, sequence: int) -> Iterator[Ready]:
        at = 0
        for batch in encode(
            rows.keys,
            rows.values,
            headers=rows.headers,
            timestamps=rows.timestamps,
            compression=self.settings.compression,
            level=self.settings.level,
            batch_bytes=batch_bytes,
            records_max=records_max,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            transactional=self.identity.transactional,
        ):
            yield Ready(batch.data, batch.rows, batch.base_sequence, rows.part(at, batch.rows))
            at += batch.rows
