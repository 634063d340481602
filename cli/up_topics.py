"""The topics that `ottla up` makes once the cluster serves."""

import time
from collections.abc import Sequence

from ottla.broker.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.broker.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.cli.client import Client
from ottla.cli.failures import CommandError
from ottla.cli.up_words import NewTopic
from ottla.runtime.errors import ErrorCode

KNOWN_TIMEOUT_S = 30.0
POLL_S = 0.01


def make_topics(topics: Sequence[NewTopic], brokers: list[str]) -> None:
    """Makes those that there are not, and returns when every broker knows them with a leader for each partition: whoever
    comes next may ask any. Raises CommandError."""
    if not topics:
        return
    wanted = [CreatableTopic(topic.name, topic.partitions, topic.replicas) for topic in topics]
    with Client(brokers[0]) as client:
        answer = client.call(CreateTopicsRequest(wanted, timeout_ms=30_000), CreateTopicsResponse)
    for each in answer.topics:
        if each.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            detail = f": {each.error_message}" if each.error_message else ""
            raise CommandError(f"--topic {each.name}: {ErrorCode(each.error_code).name}{detail}")
    for broker in brokers:
        _wait_until_known(broker, topics)


def _wait_until_known(broker: str, topics: Sequence[NewTopic]) -> None:
    asked = MetadataRequest(
        [MetadataRequestTopic(name=topic.name) for topic in topics], allow_auto_topic_creation=False
    )
    deadline = time.monotonic() + KNOWN_TIMEOUT_S
    with Client(broker) as client:
        while not all(
            topic.partitions and all(each.leader_id >= 0 for each in topic.partitions)
            for topic in client.call(asked, MetadataResponse).topics
        ):
            if time.monotonic() > deadline:
                raise CommandError(f"{broker} knew no leaders for the topics after {KNOWN_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)
