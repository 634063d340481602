"""One task's rows in topics: in a transaction that also says which batch they were, or just acknowledged."""

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ottla.pipeline.sinks.attempts import Attempt
from ottla.pipeline.sinks.errors import ReplayDiffers, ReplayTooLate
from ottla.pipeline.sinks.fingerprint import Fingerprint
from ottla.pipeline.sinks.topic_options import TopicOptions
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.groups import Committed, committed_offsets
from ottla.pipeline.wire.producer import Producer
from ottla.pipeline.wire.producer_transaction import Offset


@dataclass(frozen=True)
class Sent:
    rows: int
    skipped: bool = False
    """They were there already."""


class TopicWrite:
    """Pickled to the tasks. A write that has no name gets one that nobody else has, for all its tasks' attempts. ``is_stream``: batches
    come in order, and none comes again but the last."""

    def __init__(self, options: TopicOptions, planned_ago_hours: float = 0.0, *, is_stream: bool = False) -> None:
        self._options, self._is_stream = options, is_stream
        self._ago_hours = planned_ago_hours
        self._own = f"write-{uuid.uuid4().hex}"

    def write(self, batches: Iterable[pa.RecordBatch], attempt: Attempt, cluster: Cluster) -> Sent:
        full = (batch for batch in batches if batch.num_rows)
        first = next(full, None)
        if first is None:
            return Sent(0)
        write = self._once if self._options.exactly_once else self._at_least_once
        return write(_joined(first, full), attempt, cluster)

    def _at_least_once(self, rows: Iterator[pa.RecordBatch], attempt: Attempt, cluster: Cluster) -> Sent:
        with Producer(cluster, self._options.producer, turn=attempt.task) as producer:
            for batch in rows:
                producer.send(batch, self._options.topic)
            producer.flush()
            return Sent(producer.rows)

    def _once(self, rows: Iterator[pa.RecordBatch], attempt: Attempt, cluster: Cluster) -> Sent:
        """First the claim, then the look: whoever had the id before can commit nothing any more."""
        name = f"ottla.{attempt.query or self._own}.{attempt.task}"
        with Producer(cluster, self._options.producer, name, attempt.task) as producer:
            producer.claim()
            last = _last(cluster, name)
            if last is not None and last.offset > attempt.batch:
                return self._skipped(_seen(rows) if last.offset == attempt.batch + 1 else None, attempt, last)
            if last is None and self._ago_hours > self._options.kept_hours and self._skips_late(attempt):
                return Sent(0, skipped=True)
            producer.begin()
            try:
                return self._transaction(producer, rows, attempt, name, cluster)
            except BaseException:
                with contextlib.suppress(Exception):
                    producer.abort()  # or the next claim does
                raise

    def _skips_late(self, attempt: Attempt) -> bool:
        """Whether a batch is skipped that was planned before brokers forget, and of which they know nothing."""
        if self._options.too_late == "refuse":
            raise ReplayTooLate(
                f"Batch {attempt.batch} of {attempt.query} was planned {self._ago_hours / 24:.0f} days ago, and brokers keep no longer than "
                f"{self._options.kept_hours} hours (offsetsKeptHours, their offsets.retention.minutes) what task {attempt.task} may have committed of "
                "it: whether its rows are in the topic cannot be told. Look there, and go on with option lateReplay=skip, or lateReplay=write"
            )
        return self._options.too_late == "skip"

    def _skipped(self, seen: Fingerprint | None, attempt: Attempt, last: Committed) -> Sent:
        """Nobody waits for a task of the past; but a query whose checkpoint went back plans anew what its numbers stood for."""
        if self._is_stream and last.offset > attempt.batch + 1 and self._options.too_late != "skip":
            raise ReplayDiffers(
                f"Batch {attempt.batch} of {attempt.query} comes again, and its batch {last.offset - 1} is in the topic: the query's checkpoint went "
                "back, or two queries have copies of one. What it planned anew would be skipped: begin with a new checkpoint where the topic ends, "
                "or skip what comes under the old numbers with option lateReplay=skip"
            )
        return _skipped(seen, attempt, last)

    def _transaction(
        self, producer: Producer, rows: Iterator[pa.RecordBatch], attempt: Attempt, name: str, cluster: Cluster
    ) -> Sent:
        """Before the end it looks again: a coordinator that was replaced, and has not heard of it, may have told the past;
        the one that took our offset has all that was committed before."""
        seen = Fingerprint()
        for batch in rows:
            seen = seen.joined(batch)
            producer.send(batch, self._options.topic)
        producer.flush()
        topic, partition = producer.partitions[0]
        producer.commit_offset(Offset(name, topic, partition, attempt.batch + 1, seen.told(attempt.batch)))
        last = _last(cluster, name, stable=False)
        if last is not None and last.offset > attempt.batch:
            producer.abort()
            return self._skipped(seen if last.offset == attempt.batch + 1 else None, attempt, last)
        producer.commit()
        return Sent(seen.rows)


def _last(cluster: Cluster, name: str, stable: bool = True) -> Committed | None:
    """The furthest that the id's transactions committed, wherever it stands."""
    found = committed_offsets(cluster, name, stable=stable)
    return max(found.values(), key=lambda each: each.offset, default=None)


def _seen(rows: Iterable[pa.RecordBatch]) -> Fingerprint:
    seen = Fingerprint()
    for batch in rows:
        seen = seen.joined(batch)
    return seen


def _skipped(seen: Fingerprint | None, attempt: Attempt, last: Committed) -> Sent:
    """A replay has to bring what it brought: if tasks were cut otherwise, rows were lost or doubled without a word."""
    if seen is None:
        return Sent(0, skipped=True)  # a task of the past, of which nobody waits for rows
    before = Fingerprint.read(last.metadata)
    if before is not None and before != seen:
        raise ReplayDiffers(
            f"Batch {attempt.batch} of {attempt.query} comes again, and task {attempt.task} brings other rows: {before.rows} "
            f"({before.bytes} bytes) are in the topic, {seen.rows} ({seen.bytes} bytes) would be skipped. Exactly once needs the same rows in the "
            "same tasks: no rand() or current_timestamp(), the same spark.sql.shuffle.partitions, spark.sql.adaptive.enabled=false"
        )
    return Sent(seen.rows, skipped=True)


def _joined(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
