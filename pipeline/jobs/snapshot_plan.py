"""Whether a snapshot may begin with an earlier one, and what it reads. Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

KIND = "ottla-snapshot"
TOMBSTONE_MARGIN = 0.9
"""Of delete.retention.ms: a tombstone that is about to go may be gone when it is read."""

Offsets = Mapping[int, int]


class SnapshotError(Exception):
    """Why a snapshot cannot be made so; the message says what to do."""


@dataclass(frozen=True)
class Manifest:
    """What is kept with a snapshot: it holds the latest record of each key before these offsets."""

    topic: str
    topic_id: str
    ends: Mapping[str, int]
    taken_ms: int
    """When the topic was looked at: tombstones that were there then are in it. 0 where some may lie behind its ends."""

    def text(self) -> str:
        return json.dumps({"kind": KIND, **asdict(self)}, sort_keys=True)


@dataclass(frozen=True)
class Now:
    """The topic as it is."""

    topic: str
    topic_id: str
    starts: Offsets
    ends: Offsets
    now_ms: int
    tombstones_kept_ms: int
    """How long the log is sure to keep one; 0: nobody says."""
    is_whole: bool = True
    """Whether the ends are where the topic ended, and no earlier ones."""


def manifest_of(text: str) -> Manifest:
    """Raises SnapshotError for a commit that was no snapshot's."""
    try:
        told: dict[str, Any] = json.loads(text) if text else {}
        if told.pop("kind", None) == KIND:
            return Manifest(**told)
    except (ValueError, TypeError):
        pass
    raise SnapshotError("its last commit is no snapshot's: leave --since out, or name a table that a snapshot wrote")


def taken(now: Now) -> Manifest:
    """Of a snapshot of that. A tombstone that lies behind its ends may be as old as can be, and gone at any moment."""
    ends = {str(partition): end for partition, end in now.ends.items()}
    return Manifest(now.topic, now.topic_id, ends, now.now_ms if now.is_whole else 0)


def require_goes_on(since: Manifest, now: Now) -> None:
    """Raises SnapshotError where what is between the two cannot be read in full any more."""
    if since.topic != now.topic:
        raise SnapshotError(f"it is of topic {since.topic}, and this is of {now.topic}")
    if since.topic_id != now.topic_id:
        raise SnapshotError(f"topic {now.topic} was deleted and made again since: leave --since out")
    age_ms = now.now_ms - since.taken_ms
    if age_ms > now.tombstones_kept_ms * TOMBSTONE_MARGIN:
        what = f"it is {age_ms / 3_600_000:.1f} h old" if since.taken_ms else "it ends before the topic did"
        kept_h = now.tombstones_kept_ms / 3_600_000
        how = f"are kept for {kept_h:.1f} h" if kept_h else "are kept for nobody says how long"
        raise SnapshotError(
            f"{what}, and tombstones {how} (delete.retention.ms): some may be gone, and their keys would stay. Leave --since out"
        )
    for partition, end in sorted(now.ends.items()):
        before = since.ends.get(str(partition), 0)
        if before > end:
            raise SnapshotError(
                f"it reaches to {before} of {now.topic}-{partition}, and this one ends at {end}: leave --since out"
            )


def starting(since: Manifest | None, now: Now) -> dict[int, int]:
    """Where reading begins: a partition is read from where the log begins, or where the snapshot before it ended."""
    before = since.ends if since is not None else {}
    return {
        partition: max(start, min(before.get(str(partition), start), now.ends[partition]))
        for partition, start in now.starts.items()
    }


def ended_at(wanted: Offsets, now: Now) -> Now:
    """The topic up to these ends. Raises SnapshotError."""
    ends = clipped(wanted, now)
    return replace(now, ends=ends, is_whole=ends == now.ends)


def clipped(wanted: Offsets, now: Now) -> dict[int, int]:
    """The ends that were asked for, as far as there are records. Raises SnapshotError for a partition that there is not."""
    unknown = sorted(set(wanted) - set(now.ends))
    if unknown:
        raise SnapshotError(f"{now.topic} has no partition {unknown[0]}: it has {len(now.ends)}")
    beyond = next((each for each in sorted(wanted) if wanted[each] > now.ends[each]), None)
    if beyond is not None:
        raise SnapshotError(
            f"{now.topic}-{beyond} ends at {now.ends[beyond]}, before offset {wanted[beyond]}: a snapshot cannot end where nothing is yet"
        )
    return {partition: wanted.get(partition, end) for partition, end in now.ends.items()}
