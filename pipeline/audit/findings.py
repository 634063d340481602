"""What an audit finds, as rows of two tables."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

FAULT = "fault"
NOTE = "note"

FINDINGS_MAX = 100
"""Of one kind in one replica: a disk that lies does so often."""


class Finding(NamedTuple):
    """One thing found. A fault is what no sound log has; a note is legal, and worth knowing.

    ``position`` in bytes of the file ``path``, -1 where it is about the whole replica; ``offset`` where it begins in the log.
    """

    severity: str
    kind: str
    topic: str
    partition: int
    node: str
    path: str
    position: int
    offset: int
    message: str


class Standing(NamedTuple):
    """One replica, counted. Control batches and their records are none of ``records``."""

    topic: str
    partition: int
    topic_id: str
    node: str
    directory: str
    start_offset: int
    end_offset: int
    high_watermark: int | None
    batches: int
    records: int
    control_batches: int
    bytes: int


class Report(NamedTuple):
    """What was found in replicas, and what they hold."""

    findings: tuple[Finding, ...]
    replicas: tuple[Standing, ...]

    @property
    def faults(self) -> int:
        return sum(finding.severity == FAULT for finding in self.findings)

    @property
    def bytes(self) -> int:
        return sum(replica.bytes for replica in self.replicas)


def joined(reports: Iterable[Report]) -> Report:
    """All of them as one, in the order of topics and partitions."""
    findings: list[Finding] = []
    replicas: list[Standing] = []
    for report in reports:
        findings += report.findings
        replicas += report.replicas
    findings.sort(key=lambda each: (each.topic, each.partition, each.offset, each.path))
    replicas.sort(key=lambda each: (each.topic, each.partition, each.directory))
    return Report(tuple(findings), tuple(replicas))


_FINDINGS = pa.schema(
    [(name, pa.int64() if kind is int else pa.string()) for name, kind in Finding.__annotations__.items()]
)
_REPLICAS = pa.schema(
    [(name, pa.string() if kind is str else pa.int64()) for name, kind in Standing.__annotations__.items()]
)


def findings_table(report: Report) -> pa.Table:
    return pa.Table.from_pylist([finding._asdict() for finding in report.findings], _FINDINGS)


def replicas_table(report: Report) -> pa.Table:
    return pa.Table.from_pylist([replica._asdict() for replica in report.replicas], _REPLICAS)


class Notebook:
    """The findings about one replica, so many of each kind."""

    def __init__(self, topic: str, partition: int, node: str) -> None:
        self._who = (topic, partition, node)
        self._kinds: Counter[str] = Counter()
        self._found: list[Finding] = []

    def add(self, severity: str, kind: str, path: str, offset: int, message: str, position: int = -1) -> None:
        self._kinds[kind] += 1
        if self._kinds[kind] <= FINDINGS_MAX:
            self._found.append(Finding(severity, kind, *self._who, path, position, offset, message))

    def findings(self) -> list[Finding]:
        """With a last one for each kind of which there were more."""
        more = {kind: number - FINDINGS_MAX for kind, number in self._kinds.items() if number > FINDINGS_MAX}
        lasts = [next(each for each in reversed(self._found) if each.kind == kind) for kind in more]
        return self._found + [
            last._replace(message=f"and {more[last.kind]} more of these in this replica") for last in lasts
        ]
