"""What a query's checkpoint says of how far it is. Read as files, without Spark: it is the truth also when the job is dead.

``offsets/N`` is written before batch N runs: a version, a line about the batch, then a line for each source. ``commits/N`` appears when it is
done. So a batch with the first and without the second will run again, with the same offsets.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.cli.failures import CommandError
from ottla.pipeline.jobs.files import files_of

Offsets = dict[tuple[str, int], int]
"""The next offset to read, by topic and partition."""


class Planned(NamedTuple):
    """What a batch reads up to."""

    batch: int
    offsets: Offsets
    watermark_ms: int
    planned_ms: int
    ids: Mapping[str, str]
    """Of the topics, as far as the source knew them."""


class Checkpoint:
    """A directory that Spark wrote, or is to write."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._files = files_of(directory)

    def __bool__(self) -> bool:
        """Whether a query was here at all."""
        return bool(self.planned_batches())

    def planned_batches(self) -> dict[int, float]:
        """By number, with when each was written."""
        return self._files.numbers("offsets")

    def done_batches(self) -> dict[int, float]:
        return self._files.numbers("commits")

    def planned(self, batch: int) -> Planned:
        """Raises CommandError."""
        text = self._files.text(f"offsets/{batch}")
        try:
            return _planned(batch, text)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise CommandError(
                f"{self.directory}/offsets/{batch} has no offsets of topics: is this the checkpoint of another kind of query?"
            ) from None

    def watermark_ms(self, batch: int) -> int:
        """Of a query of any kind. Raises CommandError."""
        lines = self._files.text(f"offsets/{batch}").splitlines()
        return int(json.loads(lines[1]).get("batchWatermarkMs", 0))

    def last_done(self) -> Planned | None:
        """The newest batch that is done."""
        done = self.done_batches().keys() & self.planned_batches().keys()
        return self.planned(max(done)) if done else None

    def unfinished(self) -> Planned | None:
        """The batch that runs, or ran when the job died."""
        planned, done = self.planned_batches(), self.done_batches()
        newest = max(planned, default=None)
        return None if newest is None or newest in done else self.planned(newest)

    def query_id(self) -> str | None:
        try:
            found = json.loads(self._files.text("metadata"))["id"]
        except (CommandError, ValueError, KeyError, TypeError):
            return None
        return str(found)


def _planned(batch: int, text: str) -> Planned:
    _version, about, *sources = text.splitlines()
    known = json.loads(about)
    offsets: Offsets = {}
    ids: dict[str, str] = {}
    for source in sources:
        if source.strip() not in ("", "-"):
            told = json.loads(source)
            offsets |= offsets_of(told)
            ids |= {name: topic_id for name, mark, topic_id in (each.partition(":") for each in told) if mark}
    return Planned(batch, offsets, int(known.get("batchWatermarkMs", 0)), int(known.get("batchTimestampMs", 0)), ids)


def offsets_of(told: Mapping[str, Mapping[str, Any]] | str | None) -> Offsets:
    """Of a source's JSON, as Spark's Kafka connector writes it: topic, partition, offset."""
    parsed = json.loads(told) if isinstance(told, str) else told or {}
    found = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(topic)
        found.update({(topic, int(number)): int(offset) for number, offset in partitions.items()})
    return found
