"""Which replica of each partition is read, up to where, and in which stretches."""

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from ottla.pipeline.arrow.batches import HEADER, HEADER_BYTES, MAGIC
from ottla.pipeline.segments.errors import SegmentsError
from ottla.pipeline.segments.reading import Stretch
from ottla.pipeline.segments.replicas import METADATA_TOPIC, Replica, Segment
from ottla.pipeline.segments.transactions import Transactions, overlapping, transactions_of

_OFFSET_MAX = 2**62
_INDEX_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])


class Choice(NamedTuple):
    """What is read: one replica of each partition, chosen by these words."""

    topics: frozenset[str] | None = None
    topic_id: str | None = None
    read_committed: bool = True
    to_log_end: bool = False


def choose(replicas: Iterable[Replica], choice: Choice) -> list[tuple[Replica, int | None]]:
    """One replica of each partition, and the highest high watermark that any of them knows. Raises SegmentsError."""
    wanted = [replica for replica in replicas if _is_wanted(replica, choice)]
    _refuse_mixtures(wanted)
    chosen = []
    for _, group in groupby(sorted(wanted, key=_partition_of), key=_partition_of):
        copies = list(group)
        watermarks = [copy.high_watermark for copy in copies if copy.high_watermark is not None]
        chosen_copy = max([copy for copy in copies if copy.segments] or copies, key=_standing)
        chosen.append((chosen_copy, max(watermarks, default=None)))
    return chosen


def _standing(replica: Replica) -> tuple[int, tuple[int, int]]:
    """Whose own high watermark is the highest has what was committed. The longest log may be that of a leader that was replaced."""
    ends = [(segment.base_offset, segment.size_bytes) for segment in replica.segments[-1:]]
    return -1 if replica.high_watermark is None else replica.high_watermark, max(ends, default=(-1, 0))


def _partition_of(replica: Replica) -> tuple[str, int]:
    return replica.topic, replica.partition


def _is_wanted(replica: Replica, choice: Choice) -> bool:
    if choice.topic_id and replica.topic_id not in ("", choice.topic_id):
        return False
    if choice.topics is not None:
        return replica.topic in choice.topics
    return replica.topic != METADATA_TOPIC and not replica.topic.startswith("__")


def _refuse_mixtures(replicas: Sequence[Replica]) -> None:
    """A name may have belonged to one topic and then to another: their records are not one table."""
    identities: dict[str, dict[str, str]] = {}
    for replica in replicas:
        if replica.topic_id:
            identities.setdefault(replica.topic, {}).setdefault(replica.topic_id, replica.directory)
    for topic, known in identities.items():
        if len(known) > 1:
            places = "; ".join(f"{identity} in {directory}" for identity, directory in sorted(known.items()))
            raise SegmentsError(
                f"{topic} is the name of {len(known)} topics: {places}. Say which one with option topicId"
            )


def stretches(replica: Replica, high_watermark: int | None, choice: Choice, split_bytes: int) -> list[Stretch]:
    """What is to be read of a replica, in pieces of about ``split_bytes``. OSError passes through."""
    known = choice.to_log_end or high_watermark is None
    end = _OFFSET_MAX if known or high_watermark is None else high_watermark
    sure = end < _OFFSET_MAX
    transactions = Transactions((), None)
    if choice.read_committed:
        transactions = transactions_of(replica)
        if transactions.open_from is not None:
            end = min(end, transactions.open_from)
    found: list[Stretch] = []
    last = _last_segment(replica.segments, end)
    for number, segment in enumerate(replica.segments[: last + 1]):
        until = replica.segments[number + 1].base_offset if number < len(replica.segments) - 1 else _OFFSET_MAX
        if until <= replica.start_offset or segment.base_offset >= end:
            continue
        for (start, from_offset), (stop, to_offset) in pairwise(_cuts(segment, until, split_bytes)):
            limits = max(from_offset, replica.start_offset), min(to_offset, end)
            is_last = number == len(replica.segments) - 1 and stop == segment.size_bytes
            if limits[0] < limits[1]:
                aborted = overlapping(transactions.aborted, *limits) if choice.read_committed else None
                found.append(
                    Stretch(
                        segment.path,
                        replica.topic,
                        replica.partition,
                        start,
                        stop,
                        *limits,
                        aborted,
                        is_last,
                        sure and is_last,
                    )
                )
    return found


def _last_segment(segments: Sequence[Segment], end: int) -> int:
    return max((number for number, segment in enumerate(segments) if segment.base_offset < end), default=-1)


def _cuts(segment: Segment, until: int, split_bytes: int) -> list[tuple[int, int]]:
    """Where the segment is cut: positions at which batches begin, and the offsets from which their records are; both ends too."""
    cuts = [(0, segment.base_offset)]
    if segment.size_bytes >= 2 * split_bytes:
        entries = _index_of(segment)
        wanted = np.arange(split_bytes, segment.size_bytes - split_bytes // 2, split_bytes)
        for number in np.unique(np.searchsorted(entries["position"], wanted)).tolist():
            if number < len(entries):
                cut = _batch_at(segment, int(entries["position"][number]), int(entries["offset"][number]))
                if cut is not None and cut[0] > cuts[-1][0] and cut[1] > cuts[-1][1]:
                    cuts.append(cut)
    return [*cuts, (segment.size_bytes, until)]


def _index_of(segment: Segment) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """The entries of the offset index; none where it is not there, or no index."""
    try:
        with open(segment.path.removesuffix(".log") + ".index", "rb") as file:
            data = file.read()
    except FileNotFoundError:
        data = b""
    entries = np.frombuffer(data[: len(data) - len(data) % _INDEX_ENTRY.itemsize], _INDEX_ENTRY)
    # Kafka's index of the active segment has zeros behind its entries.
    positions = entries["position"].astype(np.int64)
    rising = np.flatnonzero(np.diff(positions, prepend=0) <= 0)
    return entries[: int(rising[0])] if rising.size else entries


def _batch_at(segment: Segment, position: int, relative_offset: int) -> tuple[int, int] | None:
    """The position, and the base offset of the batch there, if it is the one that the entry means."""
    with open(segment.path, "rb") as file:
        file.seek(position)
        data = file.read(HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return None
    header = np.frombuffer(data, HEADER)[0]
    base = int(header["base_offset"])
    if header["magic"] != MAGIC or base + int(header["last_offset_delta"]) != segment.base_offset + relative_offset:
        return None
    return position, base


def next_cut(segment: Segment, position: int) -> int | None:
    """Where the first batch behind ``position`` begins that the index knows and that is there; None when it knows none."""
    entries = _index_of(segment)
    behind = entries[int(np.searchsorted(entries["position"], position, side="right")) :]
    for entry_offset, entry_position in behind.tolist():
        cut = _batch_at(segment, entry_position, entry_offset)
        if cut is not None:
            return cut[0]
    return None
