"""What only a group's coordinator knows of it: asked for as settings of the group, which brokers of Kafka do not have."""

import json
from typing import Any

from ottla.broker.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.broker.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.cli.client import Client
from ottla.cli.coordinators import PASSING
from ottla.cli.failures import refuse
from ottla.cli.leader_requests import Place

REBALANCES, COMMITS = "ottla.group.rebalances", "ottla.group.commits"
_GROUP = 32
_RATE_GRACE_MS = 10_000
"""Commits come every few seconds: for so long after one nobody is taken to have stopped."""
_RATE_MS_MIN = 1_000


def asked(client: Client, name: str, key: str) -> list[Any] | None:
    """The entries of the key; None where the broker does not have it. Raises CommandError when the coordinator is another."""
    resource = DescribeConfigsResource(_GROUP, name, [key])
    (result,) = client.call(DescribeConfigsRequest([resource]), DescribeConfigsResponse).results
    if result.error_code in PASSING:
        refuse(result.error_code, name, result.error_message)
    found = [json.loads(each.value) for each in result.configs if each.name == key and each.value]
    return None if result.error_code else found


def rates(client: Client, name: str) -> dict[Place, float]:
    """Records a second that the group read, by its commits; of partitions with one commit lately there is none."""
    found: dict[Place, float] = {}
    now, *pieces = asked(client, name, COMMITS) or [None]
    for piece in pieces:
        for topic, partition, offset, time_ms, since_offset, since_ms in piece:
            rate = rate_of(offset - since_offset, since_ms, time_ms, now["now_ms"])
            if rate is not None:
                found[Place(topic, partition)] = rate
    return found


def rate_of(count: int, since_ms: int, last_ms: int, now_ms: int) -> float | None:
    took_ms = max(last_ms, now_ms - _RATE_GRACE_MS) - since_ms
    return count * 1000 / took_ms if took_ms >= _RATE_MS_MIN and count >= 0 else None
