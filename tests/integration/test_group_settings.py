"""A group is given settings of its own while it has members: from any node to the coordinator and to the member."""

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.runtime.errors import ErrorCode
from ottla.testing.processes import ProcessCluster, wait_for
from tests.integration.wire import Connection

GROUP_RESOURCE, SET, DELETE = 32, 0, 1
HEARTBEAT = "consumer.heartbeat.interval.ms"


def alter(connection: Connection, group: str, operation: int, value: str | None) -> ErrorCode:
    resource = AlterConfigsResource(GROUP_RESOURCE, group, [AlterableConfig(HEARTBEAT, operation, value)])
    (told,) = connection.ask(IncrementalAlterConfigsRequest([resource]), 1).responses
    return ErrorCode(told.error_code)


def coordinator_of(connection: Connection, group: str) -> Connection:
    found: list[int] = []

    def is_found() -> bool:
        told = connection.ask(FindCoordinatorRequest(group, 0), 3)
        if not told.error_code:
            found.append(told.port)
        return bool(found)

    wait_for(is_found, "the coordinator")
    return Connection(found[0])


def test_a_member_hears_of_its_groups_settings_at_its_next_heartbeat(cluster: ProcessCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
    cluster.wait_for_topic(topic, 1)
    anyone = Connection(cluster.node(1).port)
    coordinator = coordinator_of(anyone, topic)

    def beat(epoch: int) -> int:
        """What the member is told; -1 for an error."""
        request = ConsumerGroupHeartbeatRequest(topic, "one", epoch)
        if not epoch:
            request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 10_000, [topic], []
        told = coordinator.ask(request, 1)
        return -1 if told.error_code else int(told.heartbeat_interval_ms)

    wait_for(lambda: beat(0) == 500, "the member to be in")
    assert alter(anyone, topic, SET, "499") is ErrorCode.INVALID_CONFIG
    assert alter(anyone, topic, SET, "600") is ErrorCode.NONE
    wait_for(lambda: beat(1) == 600, "the group's own interval")
    assert alter(anyone, topic, DELETE, None) is ErrorCode.NONE
    wait_for(lambda: beat(1) == 500, "the broker's interval")
    assert beat(-1) == 0
    anyone.close()
    coordinator.close()
