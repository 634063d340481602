"""What clients do while a cluster is in trouble, and remember for the checker (docs/checker.md)."""

from collections.abc import Callable, Mapping

from ottla.testing.chaos.workloads.admin import AdminChurn
from ottla.testing.chaos.workloads.assign import Assign
from ottla.testing.chaos.workloads.groups import Groups
from ottla.testing.chaos.workloads.list_offsets import ListOffsetsWorkload
from ottla.testing.chaos.workloads.registers import Registers
from ottla.testing.chaos.workloads.sequences import Sequences
from ottla.testing.chaos.workloads.transactions import Transactions
from ottla.testing.chaos.workloads.workload import Workload

__all__ = ["WORKLOADS", "Workload"]

WORKLOADS: Mapping[str, Callable[[], Workload]] = {
    each.name: each for each in (Registers, Sequences, ListOffsetsWorkload, Assign, Groups, Transactions, AdminChurn)
}
