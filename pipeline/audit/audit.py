"""All replicas in all brokers' directories: each checked by itself, and against the others of its partition."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from ottla.pipeline.audit.compare import audit_partition
from ottla.pipeline.audit.findings import NOTE, Finding, Report, joined
from ottla.pipeline.segments.replicas import Replica, find_replicas

Unit = tuple[Replica, ...]
"""The replicas of one partition of one topic."""

Told = Callable[[Report], None]


def audit(directories: Iterable[str], *, processes: int = 1, topics: frozenset[str] | None = None) -> Report:
    """Audits what lies in these directories (or globs). Raises SegmentsError where one is not there; OSError passes through."""
    units, found = units_of(directories, topics)
    return joined([found, *run(units, processes)])


def units_of(directories: Iterable[str], topics: frozenset[str] | None = None) -> tuple[list[Unit], Report]:
    """What is to be audited, the largest first; and what their names alone show."""
    replicas = [each for each in find_replicas(directories) if topics is None or each.topic in topics]
    partitions: dict[tuple[str, int], list[Replica]] = {}
    for replica in replicas:
        partitions.setdefault((replica.topic, replica.partition), []).append(replica)
    units: list[Unit] = []
    findings: list[Finding] = []
    for copies in partitions.values():
        topic_units = _by_topic_id(copies)
        units += topic_units
        if len(topic_units) > 1:
            findings += [_of_another_topic(replica) for unit in topic_units[1:] for replica in unit]
    units.sort(key=size_bytes, reverse=True)
    return units, Report(tuple(findings), ())


def size_bytes(unit: Unit) -> int:
    return sum(replica.size_bytes for replica in unit)


def _by_topic_id(copies: Sequence[Replica]) -> list[Unit]:
    """Those of one topic together, the most first. Whose topic is not known belongs to them."""
    known: dict[str, list[Replica]] = {}
    for replica in copies:
        if replica.topic_id:
            known.setdefault(replica.topic_id, []).append(replica)
    groups = sorted(known.values(), key=len, reverse=True) or [[]]
    groups[0] += [replica for replica in copies if not replica.topic_id]
    return [tuple(group) for group in groups]


def _of_another_topic(replica: Replica) -> Finding:
    message = f"belongs to another topic of this name: {replica.topic_id}"
    return Finding(NOTE, "topic-id", replica.topic, replica.partition, replica.node, replica.directory, -1, -1, message)


def run(units: Sequence[Unit], processes: int, told: Told | None = None) -> list[Report]:
    """Audits the units, in ``processes`` at once; each report is told when it is there."""
    reports = []
    if processes <= 1 or len(units) <= 1:
        for unit in units:
            reports.append(audit_partition(unit))
            if told is not None:
                told(reports[-1])
        return reports
    # Not forked: Arrow has threads.
    with ProcessPoolExecutor(min(processes, len(units)), mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(audit_partition, unit) for unit in units]):
            reports.append(done.result())
            if told is not None:
                told(reports[-1])
    return reports
