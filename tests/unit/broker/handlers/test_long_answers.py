"""Metadata of many topics: over turns of the loop, in order, and never of brokers that are not those of its beginning."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.handlers import create_topics, describe_configs
from ottla.broker.handlers.config_entries import topic_entries
from ottla.broker.handlers.long_answers import HELD_BYTES
from ottla.broker.handlers.metadata import PIECE_WORK
from ottla.broker.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.broker.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.broker.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.broker.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.proto import controller_pb2
from ottla.quorum.metadata.views import TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.handlers.conftest import Site, partition_view

ALL = MetadataRequest(topics=None)
TOPICS = PIECE_WORK


def crowded(site: Site) -> None:
    for number in range(TOPICS):
        site.add_topic(f"topic-{number}", partition_view((1, 2, 3), (1, 2, 3), 1))


def run(site: Site, scenario: Callable[[], Awaitable[None]]) -> None:
    crowded(site)
    asyncio.run(scenario())  # type: ignore[arg-type]


async def answered(site: Site) -> int:
    """The turns that it took."""
    turns = 0
    while not site.written:
        await asyncio.sleep(0)
        turns += 1
        assert turns < 100
    return turns


def test_all_topics_are_told_over_turns(site: Site) -> None:
    async def scenario() -> None:
        site.send(ALL, 12)
        assert 3 <= await answered(site) <= 6
        assert [topic.name for topic in site.received("MetadataResponse", 12).topics] == [
            f"topic-{number}" for number in range(TOPICS)
        ]

    run(site, scenario)


def test_names_that_are_asked_for_again_and_again_are_looked_through_over_turns(site: Site) -> None:
    async def scenario() -> None:
        site.send(MetadataRequest([MetadataRequestTopic(name=f"topic-{number % 2}") for number in range(6_000)]), 4)
        assert await answered(site) == 1
        assert [topic.name for topic in site.received("MetadataResponse", 4).topics] == ["topic-0", "topic-1"]

    run(site, scenario)


def test_what_comes_behind_it_waits_its_turn(site: Site) -> None:
    async def scenario() -> None:
        site.send(ALL, 12)
        site.send(ApiVersionsRequest(), 0)
        assert not site.written
        await answered(site)
        size = int.from_bytes(site.written[:4], "big")
        assert len(site.written) > size + 4
        assert site.written[size + 4 + 8 :][:2] == b"\0\0"  # the ApiVersions' error code

    run(site, scenario)


def test_topics_that_go_and_come_meanwhile_harm_nobody(site: Site) -> None:
    async def scenario() -> None:
        site.send(ALL, 12)
        await asyncio.sleep(0)
        del site.image.topics_by_name[f"topic-{TOPICS - 1}"]
        site.add_topic("new", partition_view((1,), (1,), 1))
        await answered(site)
        assert len(site.received("MetadataResponse", 12).topics) == TOPICS

    run(site, scenario)


@pytest.mark.parametrize("changes", [1, 50])
def test_it_begins_anew_when_the_brokers_change_but_not_for_ever(site: Site, changes: int) -> None:
    async def scenario() -> None:
        site.send(ALL, 12)
        for _ in range(changes):
            await asyncio.sleep(0)
            site.change_broker(1, fenced=not site.image.brokers[1].fenced)
            if site.written:
                break
        await answered(site)
        told: Any = site.received("MetadataResponse", 12)
        ids = {broker.node_id for broker in told.brokers}
        for topic in told.topics:
            (partition,) = topic.partitions
            assert (partition.leader_id if partition.leader_id >= 0 else None) == (1 if 1 in ids else None)

    run(site, scenario)


def test_who_asks_for_many_at_once_is_not_read_for_ever(site: Site) -> None:
    async def scenario() -> None:
        for _ in range(100):
            site.send(ALL, 12)
        assert site.connection._budget.used >= 60 * HELD_BYTES
        assert not site.transport.reading
        while site.connection.in_flight:
            site.written.clear()
            await asyncio.sleep(0)
        site.turns.end_all()
        assert site.connection._budget.used == 0
        assert site.transport.reading

    run(site, scenario)


def test_who_goes_meanwhile_costs_nothing_more(site: Site) -> None:
    async def scenario() -> None:
        site.send(ALL, 12)
        site.connection.connection_lost(None)
        before = dict(site.image.topics_by_name)
        site.image.topics_by_name.clear()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        site.image.topics_by_name.update(before)
        site.connect()
        site.send(ALL, 12)
        await answered(site)

    run(site, scenario)


def test_clients_that_go_do_not_hurry_those_who_wait(site: Site) -> None:
    async def scenario() -> None:
        for _ in range(5):
            site.send(ALL, 12)
            site.connection.connection_lost(None)
            site.connect()
        site.send(ALL, 12)
        assert await answered(site) >= 3  # a piece a turn

    run(site, scenario)


def test_a_mistake_of_ours_in_a_later_piece_costs_its_connection(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        site.add_topic("broken", partition_view((1,), (1,), 1))
        site.image.topics_by_name["broken"].partitions[0] = None  # type: ignore[assignment]
        site.send(ALL, 12)
        for _ in range(10):
            await asyncio.sleep(0)
        assert site.transport.closing
        assert "our mistake" in caplog.text

    run(site, scenario)


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_of_many_topics_are_told_over_turns(site: Site, version: int) -> None:
    async def scenario() -> None:
        names = [f"topic-{number}" for number in range(40)]
        resources = [DescribeConfigsResource(TOPIC_RESOURCE, name, None) for name in ("missing", *names)]
        site.send(DescribeConfigsRequest(resources, include_synonyms=True), version)
        assert 5 <= await answered(site) <= 10
        missing, *told = site.received("DescribeConfigsResponse", version).results
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [each.resource_name for each in told] == names
        (alone,) = site.ask(DescribeConfigsRequest(resources[1:2], include_synonyms=True), version).results
        assert all(each.configs == alone.configs for each in told)
        errors = site.connection.counters.errors
        assert sum(errors.values()) == 1

    run(site, scenario)


def test_settings_that_wait_for_others_count_until_they_leave(site: Site) -> None:
    async def scenario() -> None:
        names = [f"topic-{number}" for number in range(100)]
        site.send(DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, name, None) for name in names]), 4)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert site.connection._budget.used > HELD_BYTES + 10_000
        await answered(site)
        assert site.connection._budget.used == 0

    run(site, scenario)


def test_settings_are_described_for_nobody_who_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[object] = []

    def counted(*arguments: Any) -> Any:
        described.append(arguments)
        return topic_entries(*arguments)

    monkeypatch.setattr(describe_configs, "topic_entries", counted)
    names = [f"topic-{number}" for number in range(100)]
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, name, None) for name in names])

    async def scenario() -> None:
        site.send(request, 4)
        site.send(request, 4)
        for _ in range(3):
            await asyncio.sleep(0)
        so_far, budget = len(described), site.connection._budget
        assert len(names) > so_far > 8
        assert budget.used > HELD_BYTES
        site.connection.connection_lost(None)
        for _ in range(40):
            await asyncio.sleep(0)
        assert (len(described), budget.used) == (so_far, 0)
        site.connect()
        site.send(DescribeConfigsRequest(request.resources[:20]), 4)
        assert 1 <= await answered(site) <= 4  # nobody stands before it

    run(site, scenario)


@pytest.mark.parametrize("version", [4, 7])
def test_the_settings_of_many_new_topics_are_told_over_turns(site: Site, version: int) -> None:
    many = 3 * create_topics.PIECE
    refused = [CreatableTopic("twice"), CreatableTopic("twice")]

    async def scenario() -> None:
        site.send(CreateTopicsRequest([CreatableTopic(f"new-{number}") for number in range(many)] + refused), version)
        told = controller_pb2.ControllerResponse()
        for asked in site.controller.request.create_topics.topics:
            told.create_topics.topics.add(name=asked.name, num_partitions=1, replication_factor=1)
        site.controller.answer(told)
        assert not site.written
        assert await answered(site) >= 3
        *made, last = site.received("CreateTopicsResponse", version).topics
        assert [each.name for each in made] == [f"new-{number}" for number in range(many)]
        assert (last.name, last.error_code) == ("twice", ErrorCode.INVALID_REQUEST)
        if version >= 5:
            assert [len(each.configs) for each in made] == [len(topic_entries(site.broker, {}))] * many

    run(site, scenario)
