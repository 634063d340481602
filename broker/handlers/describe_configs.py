"""DescribeConfigs (32): settings of topics, of this node and its loggers, of all brokers, of groups and of client metrics.

A topic's cost a tenth of a millisecond, and tools ask for those of all topics at once: some are described and encoded a turn of the loop.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from ottla.broker.context import BrokerContext, NodeContext
from ottla.broker.handlers.broker_loggers import BROKER_LOGGER_RESOURCE, logger_entries
from ottla.broker.handlers.cluster_view import missing_topic_error
from ottla.broker.handlers.common import route
from ottla.broker.handlers.config_entries import (
    CLIENT_METRICS,
    ConfigEntry,
    broker_entries,
    cluster_entries,
    group_entries,
    plain_entries,
    topic_entries,
)
from ottla.broker.handlers.group_history import history_entries
from ottla.broker.handlers.long_answers import LongAnswers, Pieces
from ottla.broker.network.request import RequestContext
from ottla.broker.network.routing import Route
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.broker.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.broker.wire.primitives import encode_varint
from ottla.quorum.metadata.views import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.documentation import words_or_none

History = Callable[[str, Collection[str]], list[ConfigEntry]]
"""What a group's coordinator adds to the settings that were asked for by name."""
_PIECE = 8
"""Resources that are described in one turn: some take a millisecond alone."""
_COMPACT_FROM = 4
_NOT_THROTTLED = bytes(4)


def routes(broker: BrokerContext) -> list[Route]:
    """Of a client listener."""
    return _routes(broker, partial(history_entries, broker))


def controller_routes(node: NodeContext) -> list[Route]:
    """Of a controller's listener: it coordinates no group."""
    return _routes(node, lambda _group_id, _keys: [])


def _routes(node: NodeContext, history: History) -> list[Route]:
    long_answers = LongAnswers()

    def answer(request: RequestContext, body: DescribeConfigsRequest) -> None:
        long_answers.give(request, _pieces(node, history, request, body))

    return [route("DescribeConfigs", DescribeConfigsRequest, answer)]


def _pieces(node: NodeContext, history: History, request: RequestContext, body: DescribeConfigsRequest) -> Pieces:
    """Each resource once: six bytes of a request ask for all that there is to tell of a broker, which is nine thousand times as much."""
    results: list[bytes] = []
    seen: set[tuple[int, str, tuple[str, ...]]] = set()
    for number, resource in enumerate(body.resources):
        if number and not number % _PIECE:
            yield
        key = (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ()))
        if key in seen:
            continue
        seen.add(key)
        result = _describe(node, history, resource, body)
        if result.error_code:
            request.count_errors((result.error_code,))
        results.append(_encode(result, request.version))
        request.connection.hold(len(results[-1]))
    request.connection.hold(-sum(map(len, results)))
    return [_join(results, request.version)]


def _encode(result: DescribeConfigsResult, version: int) -> bytes:
    """The bytes of one result inside a response: those of a response with it, without what is around it."""
    alone = b"".join(encoder(DescribeConfigsResponse, version)(DescribeConfigsResponse(results=[result])))
    around = _join((), version)
    return alone[len(around) - 1 : -1] if version >= _COMPACT_FROM else alone[len(around) :]


def _join(results: Sequence[bytes], version: int) -> bytes:
    if version >= _COMPACT_FROM:
        return b"".join((_NOT_THROTTLED, encode_varint(len(results) + 1), *results, b"\0"))
    return b"".join((_NOT_THROTTLED, len(results).to_bytes(4), *results))


def _describe(
    node: NodeContext, history: History, resource: DescribeConfigsResource, body: DescribeConfigsRequest
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    try:
        keys = frozenset(resource.configuration_keys or ())  # may be very many
        entries = _entries(node, kind, name)
        if kind == GROUP_RESOURCE and keys:
            entries += history(name, keys)
    except KafkaError as error:
        return DescribeConfigsResult(error.code, str(error), kind, name)
    wanted = [entry for entry in entries if not keys or entry.name in keys]
    return DescribeConfigsResult(ErrorCode.NONE, None, kind, name, [_told(entry, body) for entry in wanted])


def _entries(node: NodeContext, kind: int, name: str) -> list[ConfigEntry]:
    if kind == TOPIC_RESOURCE:
        return _topic(node, name)
    if kind == BROKER_RESOURCE:
        return _broker(node, name)
    if kind == BROKER_LOGGER_RESOURCE:
        return logger_entries(node.node_id, name)
    if kind in (CLIENT_METRICS_RESOURCE, GROUP_RESOURCE):
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource has no name")
        own = node.image.configs.get((kind, name), {})
        return group_entries(node, own) if kind == GROUP_RESOURCE else plain_entries(own, CLIENT_METRICS)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {kind} cannot be described here")


def _topic(node: NodeContext, name: str) -> list[ConfigEntry]:
    if name not in node.image.topics_by_name:
        raise KafkaError(missing_topic_error(name), f"there is no topic {name!r}")
    return topic_entries(node, node.image.configs.get((TOPIC_RESOURCE, name), {}))


def _broker(node: NodeContext, name: str) -> list[ConfigEntry]:
    if name == "":
        return cluster_entries(node)
    if name != str(node.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"this is node {node.node_id}: ask node {name} for its own settings"
        )
    return broker_entries(node)


def _told(entry: ConfigEntry, body: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if body.include_synonyms else ()
    return DescribeConfigsResourceResult(
        entry.name,
        entry.shown_value,
        entry.read_only,
        entry.source,
        entry.is_sensitive,
        [
            DescribeConfigsSynonym(name, None if entry.is_sensitive else value, source)
            for name, value, source in synonyms
        ],
        entry.type,
        words_or_none(entry.name) if body.include_documentation else None,
    )
