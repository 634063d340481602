"""All judges over one history."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ottla.testing.checker import groups, metadata, times, transactions
from ottla.testing.checker.collected import FAILED, NO_NAME, Collected, TopicHistory
from ottla.testing.checker.findings import Judgement, Kind
from ottla.testing.checker.history import joined, read
from ottla.testing.checker.linearizability import CONFIGURATIONS_MAX
from ottla.testing.checker.logs import LogJudge
from ottla.testing.checker.operations import AnyOperation
from ottla.testing.checker.registers import Access, contradictions
from ottla.testing.checker.report import Report
from ottla.testing.checker.timeline import TimelineJudge


def check_file(path: Path, configurations_max: int = CONFIGURATIONS_MAX) -> Report:
    """Raises HistoryError, OSError."""
    return judge(Collected(read(path)), configurations_max)


def check(operations: Iterable[AnyOperation], configurations_max: int = CONFIGURATIONS_MAX) -> Report:
    """A history that is in memory; the first operation is line 1."""
    return judge(Collected(joined(operations)), configurations_max)


def judge(collected: Collected, configurations_max: int) -> Report:
    out = Judgement()
    for topic in collected.topics.values():
        for partition in topic.partitions.values():
            log = LogJudge(collected, partition, out)
            log.judge()
            TimelineJudge(collected, partition, out).judge()
            times.judge(partition, log.final, out)
            groups.judge(collected, partition, log, out)
        if topic.gets:
            _judge_registers(collected, topic, out)
    groups.judge_final_commits(collected, out)
    transactions.judge(collected, out)
    for name, lines in collected.admin.items():
        metadata.judge(name, lines, out, configurations_max)
    return Report(out, collected.counts, collected.faults)


def _judge_registers(collected: Collected, topic: TopicHistory, out: Judgement) -> None:
    writes: dict[str, list[Access]] = {key: [] for key in topic.gets}
    values: Sequence[str] = list(topic.rows)
    for row, key in enumerate(topic.keys):
        if key != NO_NAME and topic.states[row] > FAILED:
            name = collected.keys.texts[key]
            if name in writes:
                writes[name].append(Access(True, values[row], topic.begins[row], topic.ends[row], topic.lines[row]))
    permitted = bool(topic.unclean)
    for register, lines in topic.gets.items():
        gets = [(each.operation, each.number) for each in lines]
        reads = [Access(False, each.value, each.begin, each.end, number) for each, number in gets]
        for found in contradictions(writes[register] + reads):
            where = f"{topic.name} {register}"
            out.add(Kind.NOT_LINEARIZABLE, where, found.lines, found.sentence, permitted=permitted)
