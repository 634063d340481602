"""Sending a fleet's records, and saying what that took."""

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ottla.cli.failures import CommandError
from ottla.cli.output import show
from ottla.pipeline.fleet.batches import record_batches_by_time
from ottla.pipeline.fleet.fleet import Fleet, FleetError
from ottla.pipeline.fleet.pace import Pace
from ottla.pipeline.fleet.payload import topic_of
from ottla.pipeline.fleet.segment_files import DirectoryInUseError, Written, write_segments
from ottla.pipeline.fleet.sending import numbers_of
from ottla.pipeline.jobs.counting import counted
from ottla.pipeline.jobs.generate import GenerateOptions

_LARGE = {"batch.size": "900000", "max.request.size": "8000000"}
"""Batches of nearly what a topic takes; a request carries one for each partition."""


def run(options: GenerateOptions) -> None:
    """Makes all of it, and prints a row a topic. Raises CommandError."""
    fleet = fleet_of(options.fleet)
    total = sum(int(numbers_of(fleet, kind).sum()) for kind in options.kinds)
    steps = _to_segments(fleet, options) if options.segments else _to_topics(fleet, options)
    records, sizes, began = defaultdict[str, int](int), defaultdict[str, int](int), time.monotonic()
    with counted("records", total) as advance:
        for step in steps:
            records[step.kind] += step.records
            sizes[step.kind] += step.size
            advance(step.records)
    seconds = max(time.monotonic() - began, 0.001)
    rows = [
        {
            "topic": topic_of(options.prefix, kind),
            "records": records[kind],
            "bytes": sizes[kind],
            "seconds": round(seconds, 2),
            "records/s": round(records[kind] / seconds),
            "MB/s": round(sizes[kind] / seconds / 1e6, 1),
        }
        for kind in options.kinds
    ]
    show(rows, ["topic", "records", "bytes", "seconds", "records/s", "MB/s"], options.output)


def fleet_of(numbers: dict[str, float]) -> Fleet:
    """Raises CommandError for one that cannot be."""
    try:
        return Fleet(**numbers)  # type: ignore[arg-type]
    except FleetError as error:
        raise CommandError(str(error)) from None


def _to_segments(fleet: Fleet, options: GenerateOptions) -> Iterator[Written]:
    assert options.segments is not None
    try:
        yield from write_segments(
            fleet,
            options.kinds,
            Path(options.segments),
            prefix=options.prefix,
            partitions=options.partitions,
            compression=options.compression,
        )
    except DirectoryInUseError as error:
        raise CommandError(str(error)) from None


def _to_topics(fleet: Fleet, options: GenerateOptions) -> Iterator[Written]:
    """Acknowledged by all replicas in sync when it ends."""
    from ottla.pipeline.fleet.topics import prepare
    from ottla.pipeline.wire.producer import Producer

    names = [topic_of(options.prefix, kind) for kind in options.kinds]
    prepare(options.bootstrap, names, options.partitions, options.replicas, fleet.start_ms, append=options.append)
    pace = Pace(options.rate)
    settings = {"bootstrap.servers": options.bootstrap, "compression.type": options.compression, **_LARGE}
    with Producer.of(settings) as producer:
        for kind, batch in record_batches_by_time(fleet, options.kinds):
            for piece in _pieces(batch, pace.at_once):
                time.sleep(pace.wait_s(piece.num_rows, time.monotonic()))
                producer.send(piece, topic_of(options.prefix, kind))
                if options.rate:
                    producer.flush()  # it would wait for more
                yield Written(kind, piece.num_rows, _size(piece))
        producer.flush()


def _pieces(batch: pa.RecordBatch, rows: int | None) -> Iterator[pa.RecordBatch]:
    for first in range(0, batch.num_rows, rows or batch.num_rows):
        yield batch.slice(first, rows)


def _size(batch: pa.RecordBatch) -> int:
    return sum(batch[name].nbytes for name in ("key", "value"))
