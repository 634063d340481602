"""Which metrics a node has: those of its parts, as soon as there are any."""

from functools import partial
from typing import NamedTuple

from ottla import __version__
from ottla.broker.broker import Broker
from ottla.broker.coordinator import metrics as coordinators
from ottla.broker.lifecycle_state import Phase
from ottla.broker.metrics import scrape
from ottla.broker.network import metrics as network
from ottla.broker.network.server import NetworkServer
from ottla.broker.replication import metrics as replication
from ottla.log import metrics as log
from ottla.quorum import metrics as quorum_metrics
from ottla.quorum.controller import metrics as controller_metrics
from ottla.quorum.controller.controller import Controller
from ottla.quorum.controller.partition_counts import PartitionCounts
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.node import QuorumNode
from ottla.runtime.host import Host
from ottla.runtime.loop_watch import LoopWatch
from ottla.runtime.metrics import REGISTRY_METRICS, Metric, Reading, Registry, at_once, gauge
from ottla.runtime.settings.server import ServerConfig

BROKER_STATES = {
    Phase.REGISTERING: 1,
    Phase.CATCHING_UP: 2,
    Phase.STARTING: 2,
    Phase.READY: 2,
    Phase.RUNNING: 3,
    Phase.LEAVING: 6,
    Phase.GONE: 7,
}
"""Kafka's BrokerState: 1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down."""


def _turns(watch: LoopWatch) -> Reading:
    found = watch.turns.percentiles((0.99,))
    return None if found is None else {("0.99",): found[0], ("1",): watch.longest_s}


NODE_METRICS: tuple[Metric[ServerConfig], ...] = (
    gauge(
        "ottla_build_info",
        "1, with what this node is as labels.",
        lambda config: {(__version__, str(config.node_id), ",".join(config.strings("process.roles"))): 1},
        "version",
        "node",
        "roles",
    ),
)
LOOP_METRICS: tuple[Metric[LoopWatch], ...] = (
    gauge(
        "ottla_loop_turn_seconds",
        "How long turns of the event loop took in the last minute: 0.99 of them no longer than this, and all (quantile 1).",
        _turns,
        "quantile",
    ),
)
STATE_METRICS: tuple[Metric[Broker], ...] = (
    gauge(
        "kafka_server_kafkaserver_brokerstate",
        "1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down.",
        lambda broker: BROKER_STATES[broker.lifecycle.phase],
    ),
)


class Area(NamedTuple):
    """Metrics that are declared together, and which nodes have them."""

    title: str
    who: str
    metrics: tuple[Metric[object], ...]


AREAS: tuple[Area, ...] = tuple(
    Area(title, who, metrics)  # type: ignore[arg-type]  # each is read from a look of its own type
    for title, who, metrics in (
        ("Node", "every node", NODE_METRICS + LOOP_METRICS),
        ("Quorum", "every node", quorum_metrics.METRICS),
        ("Controller", "controllers, active or not", controller_metrics.METRICS),
        ("Broker", "brokers", STATE_METRICS + quorum_metrics.BROKER_METRICS),
        ("Log", "brokers", log.METRICS),
        ("Replication and traffic", "brokers", replication.METRICS),
        ("Groups and transactions", "brokers", coordinators.GROUP_METRICS + coordinators.TRANSACTION_METRICS),
        ("Network", "every node", network.METRICS + network.TIME_METRICS),
        ("The metrics themselves", "every node with a listener", scrape.METRICS + REGISTRY_METRICS),
    )
)


class NodeMetrics:
    """A node's registry, which its parts join as they are made."""

    def __init__(self, config: ServerConfig, host: Host) -> None:
        self.registry = Registry()
        self._config = config
        self._host = host
        self.registry.add(NODE_METRICS, at_once(lambda: config))
        self.registry.add(LOOP_METRICS, at_once(lambda: host.loop_watch))

    def watch_quorum(self, node: QuorumNode) -> None:
        """Adds the quorum's metrics, once it is started."""
        self.registry.add(quorum_metrics.METRICS, at_once(node.observed))

    def watch_controller(self, controller: Controller, node: QuorumNode, loader: MetadataLoader) -> None:
        applied = partial(self._applied, node, loader)
        counts = PartitionCounts(loader)
        self.registry.add(controller_metrics.METRICS, partial(controller_metrics.look, controller, counts, applied))

    def watch_network(self, server: NetworkServer) -> None:
        self.registry.add(network.METRICS, at_once(lambda: server))
        self.registry.add(network.TIME_METRICS, partial(network.look_at_times, server))

    def watch_broker(self, broker: Broker, node: QuorumNode, loader: MetadataLoader) -> None:
        registry, host, storage = self.registry, self._host, broker.storage
        partitions_max = self._config.integer("ottla.metrics.partitions.max")
        logs = partial(log.look, storage.manager, storage.cleaner, host.sync_later, host.clock.wall_ms, partitions_max)
        registry.add(STATE_METRICS, at_once(lambda: broker))
        registry.add(quorum_metrics.BROKER_METRICS, at_once(partial(self._applied, node, loader)))
        registry.add(log.METRICS, logs)
        transaction_ms_max = self._config.integer("transaction.max.timeout.ms")
        replicas = partial(replication.look, broker.replicas, host.clock.wall_ms, transaction_ms_max)
        registry.add(replication.METRICS, replicas)
        groups, transactions = broker.context.groups, broker.context.transactions
        registry.add(coordinators.GROUP_METRICS, partial(coordinators.look_at_groups, groups))
        looked = partial(
            coordinators.look_at_transactions,
            transactions,
            lambda: broker.coordination.markers.leaderless,
            host.clock.wall_ms,
        )
        registry.add(coordinators.TRANSACTION_METRICS, looked)

    def _applied(self, node: QuorumNode, loader: MetadataLoader) -> quorum_metrics.AppliedMetadata:
        return quorum_metrics.AppliedMetadata(loader, node.high_watermark, self._host.clock.wall_ms())
