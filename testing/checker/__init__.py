"""Judges what clients of Ottla or of Apache Kafka saw: docs/checker.md.

from ottla.testing.checker import Produce, Recorder, check_file, now

with Recorder(path) as history:
    history.write(Produce(topic="t", partition=0, value="v", offset=3, begin=began, end=now(), outcome=Outcome.OK))
print(check_file(path))
"""

from ottla.testing.checker.findings import Finding, Kind
from ottla.testing.checker.history import HistoryError, Recorder, now
from ottla.testing.checker.judging import check, check_file
from ottla.testing.checker.operations import (
    Admin,
    Assigned,
    Commit,
    Deleted,
    Fault,
    Get,
    Isolation,
    ListOffsets,
    Outcome,
    Produce,
    Read,
    Topic,
    Transaction,
    Unclean,
)
from ottla.testing.checker.report import Report

__all__ = [
    "Admin",
    "Assigned",
    "Commit",
    "Deleted",
    "Fault",
    "Finding",
    "Get",
    "HistoryError",
    "Isolation",
    "Kind",
    "ListOffsets",
    "Outcome",
    "Produce",
    "Read",
    "Recorder",
    "Report",
    "Topic",
    "Transaction",
    "Unclean",
    "check",
    "check_file",
    "now",
]
