"""A batch that a query has done, as its progress tells it: what is shown of it, and written to --progress."""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.cli.durations import words
from ottla.pipeline.jobs.checkpoint import Offsets, offsets_of

RECENT = 10
"""Batches by which a rate is told."""
PARTITIONS_SHOWN = 8


class Batch(NamedTuple):
    """One batch."""

    query: str
    number: int
    time: str
    rows: int
    seconds: float
    start: Offsets
    end: Offsets
    latest: Offsets
    """What there was to read when the batch ended; empty where the source does not tell."""
    watermark: str | None
    late: int
    corrupt: int
    """Of these only queries tell that look for them."""
    state_rows: int
    durations_ms: Mapping[str, int]

    @property
    def left(self) -> int | None:
        return sum(left_by_topic(self).values()) if self.latest else None

    @property
    def rate(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def batch_of(progress: Mapping[str, Any]) -> Batch:
    """Of the JSON of a StreamingQueryProgress."""
    sources, states = progress.get("sources") or [], progress.get("stateOperators") or []
    observed = progress.get("observedMetrics") or {}
    return Batch(
        query=progress.get("name") or "",
        number=progress["batchId"],
        time=progress["timestamp"],
        rows=max(progress.get("numInputRows") or 0, 0),
        seconds=progress.get("batchDuration", 0) / 1000,
        start=_offsets(sources, "startOffset"),
        end=_offsets(sources, "endOffset"),
        latest=_offsets(sources, "latestOffset"),
        watermark=(progress.get("eventTime") or {}).get("watermark"),
        late=_late(progress, states),
        corrupt=sum(sum(each.get(name) or 0 for name in ("corrupt", "untimed")) for each in observed.values()),
        state_rows=sum(each.get("numRowsTotal", 0) for each in states),
        durations_ms=progress.get("durationMs") or {},
    )


def _late(progress: Mapping[str, Any], states: Iterable[Mapping[str, Any]]) -> int:
    """Records where the query counts them; Spark by itself knows of groups only."""
    counted = (progress.get("observedMetrics") or {}).get("late")
    if counted is not None:
        return counted.get("late") or 0
    return sum(each.get("numRowsDroppedByWatermark", 0) for each in states)


def _offsets(sources: Iterable[Mapping[str, Any]], key: str) -> Offsets:
    """Empty for a source that is none of ours."""
    found: Offsets = {}
    for source in sources:
        try:
            found |= offsets_of(source.get(key))
        except (ValueError, TypeError, AttributeError):
            continue
    return found


def left_by_topic(batch: Batch) -> dict[str, int]:
    left = dict.fromkeys(sorted({topic for topic, _ in batch.end}), 0)
    for (topic, partition), offset in batch.end.items():
        left[topic] += max(batch.latest.get((topic, partition), offset) - offset, 0)
    return left


def read_by_topic(batch: Batch) -> dict[str, int]:
    """Offsets passed. Of a query's first batch it is not known from where: its rows are taken, where they are one topic's."""
    read = dict.fromkeys(sorted({topic for topic, _ in batch.end}), 0)
    if not batch.start and len(read) == 1:
        return dict.fromkeys(read, batch.rows)
    for place, offset in batch.end.items():
        read[place[0]] += max(offset - batch.start[place], 0) if place in batch.start else 0
    return read


# --- words ------------------------------------------------------------------------------------------------------------


def line(batch: Batch, rate: float | None = None) -> str:
    """What a log shows of it. ``rate``: of the last batches, for when the rest will have been read."""
    told = [f"batch {batch.number}: {batch.rows:,} rows in {words(batch.seconds)} ({batch.rate:,.0f}/s)"]
    if batch.left is not None:
        told.append(f"{batch.left:,} left" + (f", done in {words(batch.left / rate)}" if batch.left and rate else ""))
    if batch.late:
        told.append(f"{batch.late:,} late")
    if batch.corrupt:
        told.append(f"{batch.corrupt:,} unusable")
    if batch.watermark and not batch.watermark.startswith("1970-01-01T00:00:00"):
        told.append(f"watermark {batch.watermark}")
    return ", ".join(told)


def record(batch: Batch) -> dict[str, Any]:
    """For --progress: a line of JSON."""
    return {
        "query": batch.query,
        "batch": batch.number,
        "time": batch.time,
        "rows": batch.rows,
        "seconds": batch.seconds,
        "rows_per_second": round(batch.rate, 1),
        "left": batch.left,
        "left_by_topic": left_by_topic(batch) if batch.latest else None,
        "offsets": nested(batch.end),
        "watermark": batch.watermark,
        "late": batch.late,
        "corrupt": batch.corrupt,
        "state_rows": batch.state_rows,
        "durations_ms": dict(batch.durations_ms),
    }


def nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    """As JSON has them."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def ranges(start: Offsets, end: Offsets) -> str:
    """`flights-0 offsets 100 to 199, flights-2 up to 9`: what a batch reads; partitions that it reads nothing of stay unnamed."""
    told = []
    for (topic, partition), offset in sorted(end.items()):
        first = start.get((topic, partition))
        if first is None:
            told.append(f"{topic}-{partition} offsets up to {offset - 1}")
        elif first < offset:
            told.append(f"{topic}-{partition} offsets {first} to {offset - 1}")
    more = len(told) - PARTITIONS_SHOWN
    return ", ".join(told[:PARTITIONS_SHOWN]) + (f" and {more} partitions more" if more > 0 else "")


class Totals:
    """Of all batches since the job began."""

    def __init__(self) -> None:
        self.batches = self.rows = self.late = self.corrupt = 0
        self.seconds = 0.0
        self.last: Batch | None = None
        self.read: dict[str, int] = {}
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)

    def add(self, batch: Batch) -> None:
        self.batches += 1
        self.rows += batch.rows
        self.late += batch.late
        self.corrupt += batch.corrupt
        self.seconds += batch.seconds
        for topic, count in read_by_topic(batch).items():
            self.read[topic] = self.read.get(topic, 0) + count
        self._recent.append((batch.rows, batch.seconds))
        self.last = batch

    @property
    def rate(self) -> float | None:
        """Rows a second, of the last batches. The first one also starts Spark's workers: another tells more."""
        warm = list(self._recent)[1 if 1 < self.batches <= RECENT else 0 :]
        seconds = sum(took for _, took in warm)
        return sum(rows for rows, _ in warm) / seconds if seconds else None

    def summary(self) -> dict[str, Any]:
        return {
            "batches": self.batches,
            "last_batch": self.last.number if self.last else None,
            "rows": self.rows,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows / self.seconds, 1) if self.seconds else None,
            "late": self.late,
            "corrupt": self.corrupt,
            "left": self.last.left if self.last else None,
            "offsets": nested(self.last.end) if self.last else {},
        }


def parsed(text: str) -> Batch:
    """Of the progress as Spark prints it."""
    return batch_of(json.loads(text))
