"""The metrics of the partitions a broker hosts, and of what passes through them (docs/metrics.md)."""

from collections.abc import Callable, Generator

from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.runtime.metrics import Metric, counter, gauge

PARTITIONS_A_SLICE = 400
"""Looked at between two turns of the loop: a fifth of a millisecond."""


LATE_MS = 300_000
"""A transaction that is open for so much longer than its coordinator lets any be has none that knows of it."""


class ReplicaTotals:
    """One pass over the hosted partitions."""

    def __init__(self, manager: ReplicaManager, late_before_ms: int) -> None:
        self._late_before_ms = late_before_ms
        self.late_transactions = 0
        self.manager = manager
        self.traffic = manager.traffic
        self.partitions = self.leaders = self.offline = 0
        self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.lag_max = 0

    def add(self, partition: Partition) -> None:
        self.partitions += 1
        leader = partition.leader
        if leader is not None:
            in_sync, required = len(leader.committed_isr), leader.required_in_sync
            self.leaders += 1
            self.under_replicated += in_sync < len(partition.replicas)
            self.under_min_isr += in_sync < required
            self.at_min_isr += in_sync == required
            self.late_transactions += partition.log.producers.has_late(self._late_before_ms)
        elif partition.follower is not None:
            lag = partition.follower.leaders_high_watermark - partition.log.log_end_offset
            self.lag_max = max(self.lag_max, lag)
        elif not partition.usable:
            self.offline += 1


def look(
    manager: ReplicaManager, wall_ms: Callable[[], int], transaction_ms_max: int
) -> Generator[None, None, ReplicaTotals]:
    """Passes over the partitions there are, and those that could not be hosted."""
    totals = ReplicaTotals(manager, wall_ms() - transaction_ms_max - LATE_MS)
    partitions = manager.partitions
    for number, key in enumerate(list(partitions)):
        if number % (2 * PARTITIONS_A_SLICE) == 2 * PARTITIONS_A_SLICE - 1:
            yield
        if isinstance(key[0], bytes):  # each stands there by name, too
            partition = partitions.get(key)
            if partition is not None:
                totals.add(partition)
    for key in list(manager.offline):
        if isinstance(key[0], bytes) and key not in partitions:
            totals.partitions += 1
            totals.offline += 1
    return totals


METRICS: tuple[Metric[ReplicaTotals], ...] = (
    gauge("kafka_server_replicamanager_partitioncount", "Replicas on this broker.", lambda t: t.partitions),
    gauge("kafka_server_replicamanager_leadercount", "Partitions this broker leads.", lambda t: t.leaders),
    gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here with replicas out of the ISR. Should be 0.",
        lambda t: t.under_replicated,
    ),
    gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "Partitions led here with a transaction open for longer than transaction.max.timeout.ms and five minutes. Should be 0: "
        "`ottla producers describe` says whose it is.",
        lambda t: t.late_transactions,
    ),
    gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led here with fewer in sync than min.insync.replicas: acks=all is refused. Should be 0.",
        lambda t: t.under_min_isr,
    ),
    gauge(
        "kafka_server_replicamanager_atminisrpartitioncount",
        "Partitions led here with exactly min.insync.replicas in sync: one more lost, and acks=all is refused.",
        lambda t: t.at_min_isr,
    ),
    gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas whose log directory failed, or that could not be opened. Should be 0.",
        lambda t: t.offline,
    ),
    counter(
        "kafka_server_replicamanager_isrshrinks_total",
        "Times that replicas left the ISR of a partition led here.",
        lambda t: t.manager.isr_changes.shrinks,
    ),
    counter(
        "kafka_server_replicamanager_isrexpands_total",
        "Times that a replica joined the ISR of a partition led here.",
        lambda t: t.manager.isr_changes.expands,
    ),
    counter(
        "kafka_server_replicamanager_failedisrupdates_total",
        "Changes of an ISR that the controller refused, or that something overtook.",
        lambda t: t.manager.isr_changes.failures,
    ),
    gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "Records that the partition followed here which is furthest behind is behind its leader's high watermark.",
        lambda t: {("Replica",): t.lag_max},
        "clientId",
    ),
    gauge(
        "ottla_replication_damaged_partitions",
        "Replicas here with damaged records that are not healed yet. Should be 0.",
        lambda t: t.manager.healing.damaged_count,
    ),
    counter(
        "ottla_replication_damage_found_total",
        "Times that damaged records were found in a replica here.",
        lambda t: t.manager.healing.found_count,
    ),
    counter(
        "kafka_server_brokertopicmetrics_messagesin_total",
        "Records that clients produced.",
        lambda t: t.traffic.messages_in,
    ),
    counter(
        "kafka_server_brokertopicmetrics_bytesin_total",
        "Bytes of batches that clients produced.",
        lambda t: t.traffic.bytes_in,
    ),
    counter(
        "kafka_server_brokertopicmetrics_bytesout_total",
        "Bytes of Fetch answers to consumers.",
        lambda t: t.traffic.bytes_out,
    ),
    counter(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "Bytes of batches fetched from leaders.",
        lambda t: t.traffic.replication_bytes_in,
    ),
    counter(
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        "Bytes of Fetch answers to followers.",
        lambda t: t.traffic.replication_bytes_out,
    ),
    counter(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        "Batches that were refused.",
        lambda t: t.traffic.failed_produces,
    ),
    counter(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        "Partitions that a Fetch was refused.",
        lambda t: t.traffic.failed_fetches,
    ),
    gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Fetch sessions that are kept.",
        lambda t: len(t.manager.sessions),
    ),
)
