"""The metrics of a broker's coordinators (docs/metrics.md)."""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any

from ottla.broker.coordinator.coordinator import Coordinator
from ottla.broker.coordinator.decisions.groups.classic_group import GroupState
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from ottla.broker.coordinator.decisions.groups.counts import GroupCounts
from ottla.broker.coordinator.decisions.groups.describing import CLASSIC, CONSUMER
from ottla.broker.coordinator.decisions.transactions.transaction import PREPARED, State
from ottla.broker.coordinator.group_coordinator import GroupCoordinator
from ottla.broker.coordinator.transaction_coordinator import TransactionCoordinator
from ottla.runtime.metrics import Labels, Metric, Reading, counter, gauge

LOOKED_AT_A_SLICE = 2_000
"""Looked at between two turns of the loop: some tenths of a millisecond."""


class Partitions:
    """Of a coordinator's topic, those that this broker leads."""

    def __init__(self, coordinator: Coordinator[Any, Any]) -> None:
        self._partitions = coordinator.states()
        self.load_times_ms = coordinator.load_times_ms()

    @property
    def load_max_ms(self) -> float | None:
        return max(self.load_times_ms, default=None)

    @property
    def load_average_ms(self) -> float | None:
        times = self.load_times_ms
        return sum(times) / len(times) if times else None

    def partitions_by_state(self) -> Mapping[Labels, float]:
        return {(state,): number for state, number in self._partitions.items()}


class GroupTotals(Partitions):
    """One pass over the groups."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        super().__init__(coordinator)
        self.offsets = 0
        self.groups: Counter[tuple[str, str]] = Counter()
        """By protocol and state."""
        self.counts: GroupCounts = coordinator.counts()

    def of_protocol(self) -> Mapping[Labels, float]:
        found: Counter[Labels] = Counter({(CLASSIC,): 0, (CONSUMER,): 0})
        for (protocol, _), number in self.groups.items():
            found[protocol,] += number
        return found

    def consumers_by_state(self) -> Mapping[Labels, float]:
        return {(state.value,): self.groups[CONSUMER, state.value] for state in ConsumerGroupState}

    def in_state(self, state: GroupState) -> int:
        return self.groups[CLASSIC, state.value]


def look_at_groups(coordinator: GroupCoordinator) -> Generator[None, None, GroupTotals]:
    totals = GroupTotals(coordinator)
    looked = 0
    for shard in list(coordinator.shards()):
        totals.offsets += len(shard.offsets)
        for group in list(shard.all()):
            protocol = CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC
            totals.groups[protocol, group.state.value] += 1
            looked += 1
            if looked % LOOKED_AT_A_SLICE == 0:
                yield
    return totals


def _in_state(name: str, state: GroupState, words: str) -> Metric[GroupTotals]:
    def read(totals: GroupTotals) -> Reading:
        return totals.in_state(state)

    return gauge(f"kafka_coordinator_group_groupmetadatamanager_{name}", f"Classic groups {words}.", read)


GROUP_METRICS: tuple[Metric[GroupTotals], ...] = (
    gauge(
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
        "Classic groups that this broker coordinates.",
        lambda t: t.of_protocol()[CLASSIC,],
    ),
    _in_state("numgroupsempty", GroupState.EMPTY, "without members"),
    _in_state("numgroupspreparingrebalance", GroupState.PREPARING_REBALANCE, "that wait for their members to join"),
    _in_state(
        "numgroupscompletingrebalance", GroupState.COMPLETING_REBALANCE, "that wait for their leader's assignment"
    ),
    _in_state("numgroupsstable", GroupState.STABLE, "whose members have their partitions"),
    gauge(
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        "Committed offsets that this broker keeps, one for each partition of each group.",
        lambda t: t.offsets,
    ),
    gauge(
        "kafka_server_group_coordinator_metrics_group_count",
        "Groups that this broker coordinates, by protocol.",
        lambda t: t.of_protocol(),
        "protocol",
    ),
    gauge(
        "kafka_server_group_coordinator_metrics_consumer_group_count",
        "Groups of the newer protocol (KIP-848), by state.",
        lambda t: t.consumers_by_state(),
        "state",
    ),
    counter(
        "kafka_server_group_coordinator_metrics_consumer_group_rebalance_total",
        "Epochs of groups of the newer protocol: changes of their members, subscriptions or topics.",
        lambda t: t.counts.epochs,
    ),
    gauge(
        "kafka_server_group_coordinator_metrics_num_partitions",
        "Partitions of __consumer_offsets that this broker leads: active, or loading (whose groups wait).",
        lambda t: t.partitions_by_state(),
        "state",
    ),
    gauge(
        "kafka_server_group_coordinator_metrics_partition_load_time_max",
        "Milliseconds that a partition of __consumer_offsets took to load, the longest of the last minute.",
        lambda t: t.load_max_ms,
    ),
    gauge(
        "kafka_server_group_coordinator_metrics_partition_load_time_avg",
        "The average of them.",
        lambda t: t.load_average_ms,
    ),
    counter(
        "kafka_server_group_coordinator_metrics_group_completed_rebalance_total",
        "Generations of classic groups that began.",
        lambda t: t.counts.rebalances,
    ),
    counter(
        "kafka_server_group_coordinator_metrics_offset_commit_total",
        "Offsets that were committed, one for each partition.",
        lambda t: t.counts.commits,
    ),
    counter(
        "kafka_server_group_coordinator_metrics_offset_expiration_total",
        "Offsets that expired, or whose topic was deleted.",
        lambda t: t.counts.expirations,
    ),
    counter(
        "kafka_server_group_coordinator_metrics_offset_deletion_total",
        "Offsets that an administrator deleted, alone or with their group.",
        lambda t: t.counts.deletions,
    ),
)


# --- transactions -----------------------------------------------------------------------------------------------------


class TransactionTotals(Partitions):
    """One pass over the transactional ids."""

    def __init__(self, coordinator: TransactionCoordinator, leaderless: int) -> None:
        super().__init__(coordinator)
        self.leaderless = leaderless
        self.oldest_s = 0.0
        self.states: Counter[State] = Counter()
        self.counts = coordinator.counts()
        self.unwritten = 0

    def by_state(self) -> Mapping[Labels, float]:
        return {(state.told,): self.states[state] for state in _STATES}

    def by_end(self) -> Mapping[Labels, float]:
        return {("commit",): self.counts.commits, ("abort",): self.counts.aborts}


_STATES = [state for state in State if state <= State.COMPLETE_ABORT]


def look_at_transactions(
    coordinator: TransactionCoordinator, leaderless: Callable[[], int], wall_ms: Callable[[], int]
) -> Generator[None, None, TransactionTotals]:
    totals, now_ms = TransactionTotals(coordinator, leaderless()), wall_ms()
    looked = 0
    for shard in list(coordinator.shards()):
        totals.unwritten += shard.unwritten_count
        for _, each in list(shard.transactions()):
            totals.states[each.state] += 1
            if each.state is State.ONGOING or each.state in PREPARED:
                totals.oldest_s = max(totals.oldest_s, (now_ms - each.started_ms) / 1000)
            looked += 1
            if looked % LOOKED_AT_A_SLICE == 0:
                yield
    return totals


TRANSACTION_METRICS: tuple[Metric[TransactionTotals], ...] = (
    gauge(
        "kafka_server_transaction_coordinator_metrics_partition_load_time_max",
        "Milliseconds that a partition of __transaction_state took to load, the longest of the last minute.",
        lambda t: t.load_max_ms,
    ),
    gauge(
        "kafka_server_transaction_coordinator_metrics_partition_load_time_avg",
        "The average of them.",
        lambda t: t.load_average_ms,
    ),
    gauge(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        "Ended transactions whose markers wait for a partition that has no leader, or that did not take one.",
        lambda t: t.leaderless,
    ),
    gauge(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize",
        "Ended transactions whose partitions all have their markers, and whose own record could not be written: it is tried again.",
        lambda t: t.unwritten,
    ),
    counter(
        "ottla_transaction_coordinator_transactions_total",
        "Transactions that were completed here, by how they ended: commit, abort.",
        lambda t: t.by_end(),
        "end",
    ),
    counter(
        "ottla_transaction_coordinator_timeouts_total",
        "Transactions that were open for longer than their producer allowed, and are aborted for it.",
        lambda t: t.counts.timeouts,
    ),
    gauge(
        "ottla_transaction_coordinator_partitions",
        "Partitions of __transaction_state that this broker leads: active, or loading (whose transactions wait).",
        lambda t: t.partitions_by_state(),
        "state",
    ),
    gauge(
        "ottla_transaction_coordinator_ids",
        "Transactional ids that this broker coordinates, by the state of their transactions; Prepare: markers are being written.",
        lambda t: t.by_state(),
        "state",
    ),
    gauge(
        "ottla_transaction_coordinator_open_seconds_max",
        "How long the oldest open transaction has been open: readers of what is committed wait for it. 0 when there is none.",
        lambda t: t.oldest_s,
    ),
)
