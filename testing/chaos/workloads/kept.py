"""How much a leader that was not in sync has of what was committed: found while all who could say so are dead, kept for the verdict."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from ottla.log.batch import headers
from ottla.testing.chaos.workloads.final_reads import segments

FILE = "kept.json"


def write(directory: Path, kept: Mapping[tuple[str, int], int]) -> None:
    """Of a run's directory."""
    told = {f"{topic}-{partition}": offset for (topic, partition), offset in kept.items()}
    (directory / FILE).write_text(json.dumps(told), encoding="utf-8")


def read(directory: Path) -> dict[str, int]:
    """By topic-partition; empty where nobody has written it."""
    path = directory / FILE
    found: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def common(one: Path, other: Path) -> int:
    """The offset up to which two replicas' logs are the same."""
    following = 0
    for mine, its in zip(_batches(one), _batches(other), strict=False):
        if mine != its:
            break
        following = mine[1]
    return following


def _batches(replica: Path) -> Iterator[tuple[int, int, int, int]]:
    for path in segments(replica):
        for _, header in headers(path.read_bytes()):
            yield header.base_offset, header.next_offset, header.leader_epoch, header.crc
