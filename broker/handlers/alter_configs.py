"""IncrementalAlterConfigs (44) and AlterConfigs (33): settings that change at run time; decided by the controller.

A broker's settings are checked here, where it is known which of them take effect without a restart.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from ottla.broker.context import NodeContext
from ottla.broker.handlers.broker_loggers import (
    BROKER_LOGGER_RESOURCE,
    LevelChange,
    change_levels,
    check_level_changes,
)
from ottla.broker.handlers.common import Ask, Told, ask_controller, is_too_much, route, text_or_none
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.messages import alter_configs_request as replacing
from ottla.broker.wire.messages import alter_configs_response as replaced
from ottla.broker.wire.messages import incremental_alter_configs_request as incremental
from ottla.broker.wire.messages import incremental_alter_configs_response as altered
from ottla.proto import controller_pb2
from ottla.quorum.metadata.views import BROKER_RESOURCE
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.definitions import SettingError
from ottla.runtime.settings.dynamic import check_change

_SET, _DELETE = 0, 1
_TIMEOUT_MS = 30_000

Resource = controller_pb2.IncrementalAlterConfigsRequest.Resource
Change = controller_pb2.IncrementalAlterConfigsRequest.Change
Result = tuple[int, str | None, int, str]  # error code, message, resource type, resource name


def routes(node: NodeContext) -> list[Route]:
    def answer_incremental(request: RequestContext, body: incremental.IncrementalAlterConfigsRequest) -> None:
        def response(results: list[Result]) -> altered.IncrementalAlterConfigsResponse:
            return altered.IncrementalAlterConfigsResponse(
                responses=[altered.AlterConfigsResourceResponse(*result) for result in results]
            )

        if _is_too_much(request, body, response):
            return
        resources = [
            _resource(
                each.resource_type, each.resource_name, [(c.name, c.config_operation, c.value) for c in each.configs]
            )
            for each in body.resources
        ]
        _alter(node, request, resources, body.validate_only, False, response)

    def answer_replacing(request: RequestContext, body: replacing.AlterConfigsRequest) -> None:
        def response(results: list[Result]) -> replaced.AlterConfigsResponse:
            return replaced.AlterConfigsResponse(
                responses=[replaced.AlterConfigsResourceResponse(*result) for result in results]
            )

        if _is_too_much(request, body, response):
            return
        resources = [
            _resource(each.resource_type, each.resource_name, [(c.name, _SET, c.value) for c in each.configs])
            for each in body.resources
        ]
        _alter(node, request, resources, body.validate_only, True, response)

    return [
        route("IncrementalAlterConfigs", incremental.IncrementalAlterConfigsRequest, answer_incremental),
        route("AlterConfigs", replacing.AlterConfigsRequest, answer_replacing),
    ]


def _is_too_much(
    request: RequestContext,
    body: incremental.IncrementalAlterConfigsRequest | replacing.AlterConfigsRequest,
    response: Callable[[list[Result]], Any],
) -> bool:
    def refuse(code: ErrorCode, message: str) -> Any:
        return response([(code, message, each.resource_type, each.resource_name) for each in body.resources])

    return is_too_much(request, len(body.resources) + sum(len(each.configs) for each in body.resources), refuse)


def _resource(kind: int, name: str, changes: list[tuple[str, int, str | None]]) -> Resource:
    return Resource(
        resource_type=kind,
        resource_name=name,
        changes=[Change(name=key, operation=operation, value=value) for key, operation, value in changes],
    )


def _alter(
    node: NodeContext,
    request: RequestContext,
    resources: list[Resource],
    validate_only: bool,
    replace_all: bool,
    response: Callable[[list[Result]], Any],
) -> None:
    """Sends on what passes the checks; each resource gets its own result. What is of this node alone is done here."""
    wanted, settled = _split(node, resources, validate_only=validate_only, replace_all=replace_all)
    if not wanted:
        request.respond_message(response(settled))
        return

    def told(answer: Told) -> Any:
        results: list[Result] = [
            (each.error_code, text_or_none(each.error_message), each.resource_type, each.resource_name)
            for each in answer.incremental_alter_configs.resources
        ]
        return response(results + settled)

    def refuse(code: ErrorCode, message: str) -> Any:
        results: list[Result] = [(code, message, each.resource_type, each.resource_name) for each in wanted]
        return response(results + settled)

    asked = controller_pb2.IncrementalAlterConfigsRequest(
        resources=wanted, validate_only=validate_only, replace_all=replace_all
    )
    ask_controller(node, request, Ask(incremental_alter_configs=asked), _TIMEOUT_MS, told, refuse)


def _split(
    node: NodeContext, resources: list[Resource], *, validate_only: bool, replace_all: bool
) -> tuple[list[Resource], list[Result]]:
    """What the controller decides, and the results of all else."""
    wanted: dict[tuple[int, str], Resource] = {}
    settled: dict[tuple[int, str], Result] = {}
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        try:
            if times[key] > 1:  # known before any is done
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this resource more than once")
            _check(resource)
            if resource.resource_type == BROKER_LOGGER_RESOURCE:
                _change_levels(node, resource, validate_only=validate_only, replace_all=replace_all)
                settled[key] = (ErrorCode.NONE, None, *key)
            else:
                wanted[key] = resource
        except KafkaError as error:
            settled[key] = (error.code, str(error), *key)
    return list(wanted.values()), list(settled.values())


def _change_levels(node: NodeContext, resource: Resource, *, validate_only: bool, replace_all: bool) -> None:
    if replace_all:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "levels of loggers are changed by IncrementalAlterConfigs only")
    levels = [
        LevelChange(each.name, each.operation, each.value if each.HasField("value") else None)
        for each in resource.changes
    ]
    check_level_changes(node.node_id, resource.resource_name, levels)
    if not validate_only:
        change_levels(levels)


def _check(resource: Resource) -> None:
    names = [change.name for change in resource.changes]
    if len(dict.fromkeys(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a setting stands twice")
    if resource.resource_type != BROKER_RESOURCE:
        return
    for change in resource.changes:
        if change.operation != _DELETE:  # what is not there may be taken away, as kafka-reassign-partitions does
            try:
                check_change(
                    change.name, change.value if change.operation == _SET and change.HasField("value") else None
                )
            except SettingError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error  # Kafka's code for brokers
