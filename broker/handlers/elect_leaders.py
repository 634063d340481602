"""ElectLeaders (43): the first replicas lead again, or any live replica where nobody does (kafka-leader-election); decided by
the controller. Null instead of topics stands for all partitions that need it."""

from ottla.broker.context import NodeContext
from ottla.broker.handlers.common import Ask, Told, ask_controller, prepared_route, text_or_none
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest
from ottla.broker.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.proto import controller_pb2
from ottla.runtime.errors import ErrorCode

_TOP_LEVEL_ERROR_FROM = 1


def routes(node: NodeContext) -> list[Route]:
    def answer(request: RequestContext, prepared: tuple[ElectLeadersRequest, Ask]) -> None:
        body, ask = prepared
        named = body.topic_partitions or []

        def told(response: Told) -> ElectLeadersResponse:
            return ElectLeadersResponse(
                replica_election_results=[
                    ReplicaElectionResult(topic.name, [_result(each) for each in topic.partitions])
                    for topic in response.elect_leaders.topics
                ]
            )

        def refuse(code: ErrorCode, message: str) -> ElectLeadersResponse:
            results = [
                ReplicaElectionResult(
                    topic.topic, [PartitionResult(index, code, text_or_none(message)) for index in topic.partitions]
                )
                for topic in named
            ]
            of_all = code if request.version >= _TOP_LEVEL_ERROR_FROM else ErrorCode.NONE
            return ElectLeadersResponse(error_code=of_all, replica_election_results=results)

        ask_controller(node, request, ask, body.timeout_ms, told, refuse)

    return [prepared_route("ElectLeaders", ElectLeadersRequest, _asked, answer)]


def _asked(body: ElectLeadersRequest) -> tuple[ElectLeadersRequest, Ask]:
    named = body.topic_partitions or ()
    asked = controller_pb2.ElectLeadersRequest(
        election_type=body.election_type,
        topics=[
            controller_pb2.ElectLeadersRequest.Topic(name=each.topic, partitions=each.partitions) for each in named
        ],
        all_partitions=body.topic_partitions is None,
    )
    return body, Ask(elect_leaders=asked)


def _result(told: controller_pb2.ElectLeadersResponse.Partition) -> PartitionResult:
    return PartitionResult(told.partition_index, told.error_code, text_or_none(told.error_message))
