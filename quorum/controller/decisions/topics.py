"""Topics are created, deleted and given more partitions (kraft.md 2.7). One bad topic does not spoil its request."""

from ottla.log.names import METADATA_PARTITION, TOPIC_NAME_LENGTH_MAX, is_valid_topic_name
from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions.assignments import check_by_hand, new_partitions, placed
from ottla.quorum.controller.decisions.configs import check_values
from ottla.quorum.controller.decisions.decision import Decision, Record, check_entries, code_and_message
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.metadata.families.settings import config_record
from ottla.quorum.metadata.views import TOPIC_RESOURCE, TopicView
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.identifiers import random_id

_NewTopic = rpc.CreateTopicsRequest.Topic


def check_topic_name(name: str) -> None:
    """Raises KafkaError (INVALID_TOPIC_EXCEPTION)."""
    if not is_valid_topic_name(name):
        raise _bad_name(
            f"{name[:50]!r} is no name for a topic: 1 to {TOPIC_NAME_LENGTH_MAX} of a-z, A-Z, 0-9, '.', '_' and '-', "
            "but not '.' or '..'"
        )


def _bad_name(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


# --- create -----------------------------------------------------------------------------------------------------------


def create_topics(state: ControllerState, request: rpc.CreateTopicsRequest) -> Decision[rpc.CreateTopicsResponse]:
    """Topics with their settings and partitions, the whole request in one piece. Raises KafkaError (POLICY_VIOLATION)
    when it asks for too many partitions."""
    _check_size(state, request)
    response = rpc.CreateTopicsResponse()
    records: list[Record] = []
    names: dict[str, int] = {}
    for topic in request.topics:
        names[topic.name] = names.get(topic.name, 0) + 1
    created: dict[str, str] = {}  # what this request adds, by the name that collisions are told by
    for topic in request.topics:
        result = rpc.CreateTopicsResponse.Topic(name=topic.name, num_partitions=-1, replication_factor=-1)
        try:
            if names[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the topic {topic.name} is named twice")
            _check_name_is_free(state, topic.name, created)
            records += _create(state, topic, result)
            created[topic.name.replace(".", "_")] = topic.name
        except KafkaError as error:
            result.error_code, result.error_message = code_and_message(error)
        response.topics.append(result)
    return Decision(response, [] if request.validate_only else records)


def _check_size(state: ControllerState, request: rpc.CreateTopicsRequest) -> None:
    default = state.settings.num_partitions
    partitions = sum(len(each.assignments) or max(each.num_partitions, 0) or default for each in request.topics)
    if partitions > state.settings.partitions_per_request_max:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} partitions in one request: at most {state.settings.partitions_per_request_max}",
        )


def _check_name_is_free(state: ControllerState, name: str, created: dict[str, str]) -> None:
    check_topic_name(name)
    if name == METADATA_PARTITION.topic:  # Kafka's code: nobody may
        raise KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{name} is the quorum's own log, which lies where a topic would"
        )
    if name in state.image.topics_by_name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the topic {name} exists")
    other = state.names.collision(name) or created.get(name.replace(".", "_"))
    if other is not None:
        raise _bad_name(f"the names {name} and {other} differ only in '.' and '_', which metrics cannot tell apart")


def _create(state: ControllerState, topic: _NewTopic, result: rpc.CreateTopicsResponse.Topic) -> list[Record]:
    assignments = _by_hand(state, topic) if topic.assignments else _by_placement(state, topic)
    configs = _checked_configs(state, topic)
    topic_id = random_id(state.rng)
    records = [Record(topic=pb.Topic(name=topic.name, topic_id=topic_id))]
    records += [config_record(TOPIC_RESOURCE, topic.name, name, value) for name, value in configs.items()]
    records += new_partitions(state, topic_id, 0, assignments)
    result.topic_id = topic_id
    result.num_partitions, result.replication_factor = len(assignments), len(assignments[0])
    result.configs.extend(rpc.TopicConfig(name=name, value=value) for name, value in configs.items())
    return records


def _by_hand(state: ControllerState, topic: _NewTopic) -> list[list[int]]:
    if topic.replication_factor != -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "with an assignment, the replication factor must be -1")
    if topic.num_partitions != -1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "with an assignment, the number of partitions must be -1")
    by_index: dict[int, list[int]] = {}
    for each in topic.assignments:
        if each.partition_index in by_index:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {each.partition_index} is assigned twice"
            )
        by_index[each.partition_index] = list(each.broker_ids)
    if sorted(by_index) != list(range(len(by_index))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without a gap")
    assignments = [by_index[index] for index in range(len(by_index))]
    for replicas in assignments:
        check_by_hand(state, replicas, len(assignments[0]))
    return assignments


def _by_placement(state: ControllerState, topic: _NewTopic) -> list[list[int]]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be 1 or more, or -1")
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "the number of partitions must be 1 or more, or -1")
    settings = state.settings
    partitions = settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = settings.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    return placed(state, partitions, factor)


def _checked_configs(state: ControllerState, topic: _NewTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for each in topic.configs:
        if not each.HasField("value"):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the setting {each.name} has no value")
        configs[each.name] = each.value
    check_values(state, TOPIC_RESOURCE, topic.name, configs)
    return configs


# --- delete -----------------------------------------------------------------------------------------------------------


def delete_topics(state: ControllerState, request: rpc.DeleteTopicsRequest) -> Decision[rpc.DeleteTopicsResponse]:
    """Topics by name or id; a topic that is named in both ways or twice is refused. Raises KafkaError (POLICY_VIOLATION): they
    are too many."""
    check_entries(len(request.topics), state.settings.entries_per_request_max)
    response = rpc.DeleteTopicsResponse()
    records: list[Record] = []
    taken: dict[bytes, int] = {}
    for asked in request.topics:
        topic = _find(state, asked)
        if topic is not None:
            taken[topic.id] = taken.get(topic.id, 0) + 1
    for asked in request.topics:
        result = response.topics.add(topic_id=asked.topic_id)
        if asked.HasField("name"):
            result.name = asked.name
        try:
            topic = _known(state, asked)
            if taken[topic.id] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the topic {topic.name} is named twice")
        except KafkaError as error:
            result.error_code, result.error_message = code_and_message(error)
            continue
        result.name, result.topic_id = topic.name, topic.id
        records.append(Record(remove_topic=pb.RemoveTopic(topic_id=topic.id)))
    return Decision(response, records)


def _find(state: ControllerState, asked: rpc.DeleteTopicsRequest.Topic) -> TopicView | None:
    if asked.HasField("name"):
        return state.image.topics_by_name.get(asked.name)
    return state.image.topics_by_id.get(asked.topic_id)


def _known(state: ControllerState, asked: rpc.DeleteTopicsRequest.Topic) -> TopicView:
    topic = _find(state, asked)
    if topic is None and asked.HasField("name"):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name}")
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    return topic


# --- more partitions --------------------------------------------------------------------------------------------------


def create_partitions(
    state: ControllerState, request: rpc.CreatePartitionsRequest
) -> Decision[rpc.CreatePartitionsResponse]:
    """Raises the number of partitions of topics: of those for which there is room in one request. Raises KafkaError
    (POLICY_VIOLATION): they are too many."""
    check_entries(len(request.topics), state.settings.entries_per_request_max)
    response = rpc.CreatePartitionsResponse()
    records: list[Record] = []
    names: dict[str, int] = {}
    for asked in request.topics:
        names[asked.name] = names.get(asked.name, 0) + 1
    for asked in request.topics:
        result = response.topics.add(name=asked.name)
        try:
            if names[asked.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the topic {asked.name} is named twice")
            records += _more_partitions(state, asked, state.settings.partitions_per_request_max - len(records))
        except KafkaError as error:
            result.error_code, result.error_message = code_and_message(error)
    return Decision(response, [] if request.validate_only else records)


def _more_partitions(state: ControllerState, asked: rpc.CreatePartitionsRequest.Topic, room: int) -> list[Record]:
    topic = state.topic_named(asked.name)
    present = len(topic.partitions)
    more = asked.count - present
    if more <= 0:
        says = "already has" if more == 0 else "has more than that:"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"the topic {topic.name} {says} {present} partitions")
    if more > room:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{more} partitions more: at most {state.settings.partitions_per_request_max} in one request",
        )
    factor = len(topic.partitions[0].target)  # in the middle of a reassignment there are more
    if asked.has_assignments:
        assignments = [list(each.broker_ids) for each in asked.assignments]
        if len(assignments) != more:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{len(assignments)} assignments for {more} new partitions"
            )
        for replicas in assignments:
            check_by_hand(state, replicas, factor)
    else:
        assignments = placed(state, more, factor)
    return new_partitions(state, topic.id, present, assignments)
