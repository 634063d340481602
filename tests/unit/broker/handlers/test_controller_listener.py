"""What a controller answers in Kafka's protocol, active or not."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.context import NodeContext
from ottla.broker.controller_listener import OwnController
from ottla.broker.handlers.routes import HANDLERS, controller_routes
from ottla.broker.network.connection import Connection
from ottla.broker.network.limits import ConnectionLimits
from ottla.broker.network.receive import ReceivePool
from ottla.broker.wire.apis import APIS, BY_NAME
from ottla.broker.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.broker.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.broker.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.broker.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.broker.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.proto import controller_pb2
from ottla.quorum.listener import LeaderAndEpoch, QuorumDescription
from ottla.quorum.metadata.views import ControllerView, EndpointView
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.run import simulate
from tests.unit.broker.handlers.conftest import FakeQuorumView, Site
from tests.unit.broker.network.conftest import FakeTransport, Turns

SETTINGS = {
    "node.id": "1",
    "process.roles": "controller",
    "listeners": "CONTROLLER://localhost:9093",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
}
BROKERS, CONTROLLERS = 1, 2


class ControllerSite(Site):
    """Controller 1, and a client at its listener."""

    def __init__(self) -> None:
        super().__init__()
        ends = (EndpointView("CONTROLLER", "host", 9093), EndpointView("OTHER", "host", 9094))
        self.image.controllers = {each: ControllerView(each, b"i" * 16, ends, {}, "r") for each in (2, 1)}
        self.quorum = SimpleNamespace(kraft_version=1, is_leader=True, leader=LeaderAndEpoch(1, 3))
        self.node = NodeContext(
            config=type(self.config)(SETTINGS),
            image=self.image,
            controller=self.controller,
            quorum=cast(Any, self.quorum),
            quorum_view=FakeQuorumView(),  # type: ignore[arg-type]  # what it is asked for
            node_id=1,
            cluster_id="the-cluster",
            sends_on=False,
        )
        self.routes = controller_routes(self.node)
        self.turns = Turns()
        self.connection = Connection(self.routes, ReceivePool(), ConnectionLimits(), "CONTROLLER", turn=self.turns.turn)
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)

    def stand_by(self) -> None:
        self.quorum.is_leader, self.quorum.leader = False, LeaderAndEpoch(2, 4)


@pytest.fixture
def controller() -> ControllerSite:
    return ControllerSite()


def test_a_controller_offers_what_kafkas_offers_administrators_in_the_same_versions(controller: ControllerSite) -> None:
    told = controller.ask(ApiVersionsRequest("test", "1"), 4)
    offered = {APIS[each.api_key].name: (each.min_version, each.max_version) for each in told.api_keys}
    assert offered == {
        "ApiVersions": (0, 4), "CreateTopics": (2, 7), "DeleteTopics": (1, 6), "DescribeConfigs": (1, 4), "AlterConfigs": (0, 2),
        "CreatePartitions": (0, 3), "ElectLeaders": (0, 2), "IncrementalAlterConfigs": (0, 1),
        "AlterPartitionReassignments": (0, 1), "ListPartitionReassignments": (0, 0), "DescribeQuorum": (0, 2),
        "UpdateFeatures": (0, 2), "DescribeCluster": (0, 2), "UnregisterBroker": (0, 0), "AddRaftVoter": (0, 1),
        "RemoveRaftVoter": (0, 0), "SaslHandshake": (0, 1), "SaslAuthenticate": (0, 2),
        "DescribeAcls": (1, 3), "CreateAcls": (1, 3), "DeleteAcls": (1, 3),
    }  # fmt: skip


def test_what_only_brokers_answer_ends_the_connection_with_one_line(
    controller: ControllerSite, caplog: pytest.LogCaptureFixture
) -> None:
    controller.send_raw(BY_NAME["Metadata"].key, 12, b"\0\0\0")
    assert controller.connection.closed
    assert [record.getMessage() for record in caplog.records] == [
        f"Closed the connection from {controller.connection.peer}: API key 3 (Metadata) version 12 is not supported here"
    ]


def test_the_controllers_are_described_as_they_registered_and_which_is_active(controller: ControllerSite) -> None:
    told = controller.ask(DescribeClusterRequest(True, CONTROLLERS, True), 2)
    assert (told.error_code, told.endpoint_type, told.cluster_id, told.controller_id) == (0, 2, "the-cluster", 1)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in told.brokers] == [
        (1, "host", 9093, None),
        (2, "host", 9093, None),
    ]
    controller.stand_by()
    assert controller.ask(DescribeClusterRequest(False, CONTROLLERS), 2).controller_id == 2
    controller.quorum.leader = LeaderAndEpoch(None, 5)
    assert controller.ask(DescribeClusterRequest(False, CONTROLLERS), 2).controller_id == -1


@pytest.mark.parametrize(
    ("asked", "code"), [(BROKERS, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_a_controller_says_that_it_is_no_broker(controller: ControllerSite, asked: int, code: ErrorCode) -> None:
    told = controller.ask(DescribeClusterRequest(False, asked), 2)
    assert (told.error_code, told.brokers, told.controller_id) == (code, [], -1)


def test_a_broker_says_that_it_is_no_controller(site: Site) -> None:
    told = site.ask(DescribeClusterRequest(False, CONTROLLERS), 2)
    assert (told.error_code, told.brokers) == (ErrorCode.MISMATCHED_ENDPOINT_TYPE, [])
    assert "--bootstrap-server" in told.error_message


def describe_quorum(site: Site) -> Any:
    asked = [TopicData("__cluster_metadata", [PartitionData(0)])]
    return site.ask(DescribeQuorumRequest(asked), 2)


def test_the_quorum_is_described_by_who_leads_it(controller: ControllerSite) -> None:
    controller.node.quorum_view.description = QuorumDescription(1, 3, 70, [], [])  # type: ignore[attr-defined]  # a fake
    [found] = describe_quorum(controller).topics[0].partitions
    assert (found.error_code, found.leader_id, found.high_watermark) == (0, 1, 70)
    controller.stand_by()
    [found] = describe_quorum(controller).topics[0].partitions
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_voters_are_changed_by_who_leads_the_quorum(controller: ControllerSite) -> None:
    controller.stand_by()
    request = AddRaftVoterRequest(None, 100, 9, b"d" * 16, [Listener("CONTROLLER", "host", 9)])
    assert controller.ask(request, 1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_settings_of_this_controller_and_of_topics_are_described(controller: ControllerSite) -> None:
    controller.add_topic("rides")

    def of(kind: int, name: str) -> Any:
        [result] = controller.ask(DescribeConfigsRequest([DescribeConfigsResource(kind, name)]), 4).results
        return result

    assert {each.name: each.value for each in of(4, "1").configs}["process.roles"] == "controller"
    assert of(2, "rides").error_code == 0
    assert of(2, "nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert of(4, "9").error_code == ErrorCode.INVALID_REQUEST
    assert of(8, "9").error_code == ErrorCode.INVALID_REQUEST
    assert any(each.name == "root" for each in of(8, "1").configs)
    assert of(32, "a group").error_code == 0, "as it would be for a group of that name: none coordinates one here"


# Who decides.


def answer_of(handle: Callable[..., None], timeout_ms: int = 1000) -> controller_pb2.ControllerResponse | None:
    async def main(_loop: object) -> controller_pb2.ControllerResponse | None:
        told: asyncio.Future[controller_pb2.ControllerResponse | None] = asyncio.get_running_loop().create_future()
        OwnController(handle).call_back(controller_pb2.ControllerRequest(), told.set_result, timeout_ms)
        return await told

    return simulate(main, 1)


def test_a_controller_that_is_not_active_says_who_is() -> None:
    code = ErrorCode.NOT_CONTROLLER
    told = answer_of(lambda _request, reply: reply(controller_pb2.ControllerResponse(error_code=code, leader_id=2)))
    assert told is not None
    assert (told.error_code, told.error_message) == (code, "node 2 is the active controller")
    told = answer_of(lambda _request, reply: reply(controller_pb2.ControllerResponse(error_code=code)))
    assert told is not None
    assert told.error_message == "nobody is known to be the active controller"


def test_a_controller_that_does_not_answer_in_time_is_given_up_and_its_late_answer_dropped() -> None:
    replies: list[Callable[[Any], None]] = []
    assert answer_of(lambda _request, reply: replies.append(reply), timeout_ms=10) is None
    replies[0](controller_pb2.ControllerResponse())


@pytest.mark.parametrize(
    "request_", [
        CreateTopicsRequest([CreatableTopic("rides", 1, 1)], 100),
        UpdateFeaturesRequest(100, [FeatureUpdateKey("group.version", 1)]),
        IncrementalAlterConfigsRequest([AlterConfigsResource(4, "", [AlterableConfig("log.cleaner.threads", 0, "2")])]),
    ],
)  # fmt: skip
def test_what_the_active_controller_decides_is_refused_by_another(controller: ControllerSite, request_: Any) -> None:
    controller.send(request_, 0 if isinstance(request_, IncrementalAlterConfigsRequest) else 2)
    controller.controller.answer(controller_pb2.ControllerResponse(error_code=ErrorCode.NOT_CONTROLLER))
    version = 0 if isinstance(request_, IncrementalAlterConfigsRequest) else 2
    told = controller.received(type(request_).__name__.replace("Request", "Response"), version)
    codes = [told.error_code] if hasattr(told, "error_code") else []
    codes += [each.error_code for name in ("topics", "responses", "results") for each in getattr(told, name, [])]
    assert codes
    assert {*codes} == {ErrorCode.NOT_CONTROLLER}


def test_loggers_are_this_nodes_whoever_is_active(controller: ControllerSite) -> None:
    controller.stand_by()
    change = [AlterableConfig("ottla.testing.nobody", 0, "INFO")]
    told = controller.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(8, "1", change)]), 1)
    assert told.responses[0].error_code == ErrorCode.INVALID_CONFIG, "it was looked at here"
    assert not controller.controller.asked


def test_a_broker_answers_all_that_a_controller_does(controller: ControllerSite) -> None:
    site = Site()
    assert len(HANDLERS) > 0
    assert {*controller.routes.ranges()} <= {*site.routes.ranges()}
