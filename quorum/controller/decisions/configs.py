"""Dynamic configurations: set, removed, lists grown and shrunk (kraft.md 2.8). One bad resource does not spoil its request."""

from collections.abc import Mapping

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.decision import Decision, Record, check_entries, code_and_message
from ottla.quorum.controller.decisions.elr import ELR_VERSION, MIN_IN_SYNC, uses_elr
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.families.settings import config_record
from ottla.quorum.metadata.views import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

_VALUE_LENGTH_MAX = 32767
_ID_LENGTH_MAX = 10

_Resource = rpc.IncrementalAlterConfigsRequest.Resource
_Change = rpc.IncrementalAlterConfigsRequest.Change


def check_values(state: ControllerState, resource_type: int, name: str, values: Mapping[str, str]) -> None:
    """Raises KafkaError (INVALID_CONFIG) when the resource may not have these settings."""
    for key, value in values.items():
        if len(value.encode()) > _VALUE_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the value of {key} is longer than {_VALUE_LENGTH_MAX} bytes")
    state.settings.config_rules.check(resource_type, name, values)


def incremental_alter_configs(
    state: ControllerState, request: rpc.IncrementalAlterConfigsRequest
) -> Decision[rpc.IncrementalAlterConfigsResponse]:
    """Changes the settings of resources, each in one piece. Raises KafkaError (POLICY_VIOLATION): they are too many."""
    entries = len(request.resources) + sum(len(each.changes) for each in request.resources)
    check_entries(entries, state.settings.entries_per_request_max)
    response = rpc.IncrementalAlterConfigsResponse()
    records: list[Record] = []
    seen: dict[tuple[int, str], int] = {}
    for asked in request.resources:
        key = (asked.resource_type, asked.resource_name)
        seen[key] = seen.get(key, 0) + 1
    for asked in request.resources:
        result = response.resources.add(resource_type=asked.resource_type, resource_name=asked.resource_name)
        try:
            if seen[asked.resource_type, asked.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the resource {asked.resource_name} is named twice")
            records += _alter(state, asked, replace_all=request.replace_all)
        except KafkaError as error:
            result.error_code, result.error_message = code_and_message(error)
    return Decision(response, [] if request.validate_only else records)


def _alter(state: ControllerState, asked: _Resource, *, replace_all: bool) -> list[Record]:
    _check_resource(state, asked.resource_type, asked.resource_name)
    names = [each.name for each in asked.changes]
    if len(dict.fromkeys(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a setting is named twice")
    before = state.image.configs.get((asked.resource_type, asked.resource_name), {})
    after = {} if replace_all else dict(before)
    for change in asked.changes:
        value = _new_value(state, asked.resource_type, change, before)
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
    check_values(state, asked.resource_type, asked.resource_name, after)
    cleared = _check_min_in_sync(state, asked.resource_type, asked.resource_name, before, after)
    # A broker reloads what its settings point to (key stores) whenever it sees a record, so those are always written.
    always = frozenset(names if asked.resource_type == BROKER_RESOURCE else ())  # there may be ten thousand
    return cleared + [
        config_record(asked.resource_type, asked.resource_name, name, after.get(name))
        for name in dict.fromkeys([*before, *names])
        if before.get(name) != after.get(name) or (name in always and name in after)
    ]


def _check_min_in_sync(
    state: ControllerState, kind: int, name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> list[Record]:
    """With eligible leaders it is one for all brokers, and who was eligible by the one before is so no more. Raises KafkaError."""
    if not uses_elr(state.image) or before.get(MIN_IN_SYNC) == after.get(MIN_IN_SYNC):
        return []
    if kind == BROKER_RESOURCE and name and MIN_IN_SYNC in after:
        what = (
            f"{MIN_IN_SYNC} of one broker cannot be set while {ELR_VERSION} is in use: set that of all, or of a topic"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, what)
    if kind == BROKER_RESOURCE and not name and MIN_IN_SYNC not in after:
        what = f"{MIN_IN_SYNC} of all brokers cannot be removed while {ELR_VERSION} is in use: set another"
        raise KafkaError(ErrorCode.INVALID_CONFIG, what)
    if kind not in (BROKER_RESOURCE, TOPIC_RESOURCE):
        return []
    return [Record(clear_elr=pb.ClearElr(topic_name=name if kind == TOPIC_RESOURCE else ""))]


def _check_resource(state: ControllerState, resource_type: int, name: str) -> None:
    if resource_type == TOPIC_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic must be named")
        state.topic_named(name)
    elif resource_type == BROKER_RESOURCE:
        _check_broker(state, name)
    elif resource_type not in (CLIENT_METRICS_RESOURCE, GROUP_RESOURCE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings here")
    elif not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource must be named")


def _check_broker(state: ControllerState, name: str) -> None:
    if not name:
        return  # all brokers
    if not (name.isascii() and name.isdigit() and len(name) <= _ID_LENGTH_MAX and str(int(name)) == name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name[:50]!r} is no broker id")
    if int(name) not in state.image.brokers and int(name) not in state.image.controllers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {name} is not registered")


def _new_value(state: ControllerState, resource_type: int, change: _Change, before: Mapping[str, str]) -> str | None:
    if change.operation == DELETE:
        return None
    if change.operation not in (SET, APPEND, SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.operation} is no operation")
    if not change.HasField("value"):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the setting {change.name} has no value")
    if change.operation == SET:
        return change.value
    default = state.settings.config_rules.list_default(resource_type, change.name)
    if default is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name} is no list: it can be set or deleted only")
    present = _words(before[change.name]) if change.name in before else list(default)
    given = _words(change.value)
    # By dictionaries: both may be long, and to compare all with all takes half a minute.
    known = dict.fromkeys(present if change.operation == APPEND else given)
    if change.operation == APPEND:
        return ",".join([*present, *(each for each in given if each not in known)])
    return ",".join(each for each in present if each not in known)


def _words(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]
