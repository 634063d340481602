"""All that a client listener answers, and a controller's."""

from collections.abc import Callable, Iterable

from ottla.broker.context import BrokerContext, NodeContext
from ottla.broker.handlers import (
    alter_configs,
    alter_replica_log_dirs,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    group_offsets,
    groups,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    partition_reassignments,
    produce,
    raft_voters,
    security,
    transaction_descriptions,
    transactions,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from ottla.broker.handlers.api_versions import ApiVersionsHandler
from ottla.broker.handlers.fetching import fetch
from ottla.broker.network.routing import Route, RouteTable
from ottla.broker.wire.apis import API_VERSIONS

RoutesOf = Callable[[BrokerContext], list[Route]]

HANDLERS: tuple[RoutesOf, ...] = (
    alter_configs.routes,
    alter_replica_log_dirs.routes,
    consumer_group_describe.routes,
    consumer_group_heartbeat.routes,
    create_partitions.routes,
    create_topics.routes,
    delete_records.routes,
    delete_topics.routes,
    describe_cluster.routes,
    describe_configs.routes,
    describe_log_dirs.routes,
    describe_producers.routes,
    describe_quorum.routes,
    describe_topic_partitions.routes,
    elect_leaders.routes,
    fetch.routes,
    find_coordinator.routes,
    group_offsets.routes,
    groups.routes,
    init_producer_id.routes,
    list_config_resources.routes,
    list_offsets.routes,
    metadata.routes,
    offset_for_leader_epoch.routes,
    partition_reassignments.routes,
    produce.routes,
    raft_voters.routes,
    security.routes,
    transaction_descriptions.routes,
    transactions.routes,
    txn_offset_commit.routes,
    unregister_broker.routes,
    update_features.routes,
    write_txn_markers.routes,
)


def client_routes(broker: BrokerContext, handlers: tuple[RoutesOf, ...] = HANDLERS) -> RouteTable:
    """The routes of a client listener. Raises DuplicateRouteError when two handlers claim the same version."""
    return _with_versions(broker, (route for routes_of in handlers for route in routes_of(broker)))


CONTROLLER_HANDLERS: tuple[Callable[[NodeContext], list[Route]], ...] = (
    alter_configs.routes,
    create_partitions.routes,
    create_topics.routes,
    delete_topics.routes,
    describe_cluster.controller_routes,
    describe_configs.controller_routes,
    describe_quorum.routes,
    elect_leaders.routes,
    partition_reassignments.routes,
    raft_voters.routes,
    security.routes,
    unregister_broker.routes,
    update_features.routes,
)
"""What Kafka's controllers answer to administrators. Not what its nodes ask each other: ours do in gRPC."""


def controller_routes(node: NodeContext) -> RouteTable:
    """The routes of a controller's listener."""
    return _with_versions(node, (route for routes_of in CONTROLLER_HANDLERS for route in routes_of(node)))


def _with_versions(node: NodeContext, routes: Iterable[Route]) -> RouteTable:
    versions = ApiVersionsHandler(node, lambda: table.ranges())
    table = RouteTable([*routes, *versions.routes()], {API_VERSIONS: versions.answer_unsupported})
    return table
