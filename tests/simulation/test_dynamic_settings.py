"""Settings that change while nodes run, in the simulated cluster: for one broker, for all, after a restart."""

import asyncio

import pytest

from ottla.broker.metadata_storage import SYNC_INTERVAL_MS
from ottla.broker.network import host_names
from ottla.broker.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.broker.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.broker.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.broker.wire.messages.produce_response import ProduceResponse
from ottla.log.records import Record, encode_batch
from ottla.quorum.metadata.views import BROKER_RESOURCE
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.cluster import CLIENT_PORT
from ottla.testing.simulation.workload import PRODUCE_VERSION
from tests.simulation.conftest import Rig, play

SET, DELETE = 0, 1


async def change(rig: Rig, broker: str, name: str, value: str | None) -> None:
    """Of one broker, or of all (""), and until every broker that is up knows."""
    setting = AlterableConfig(name, DELETE if value is None else SET, value)
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER_RESOURCE, broker, [setting])])
    answer = await rig.client().ask_any(request, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE
    await rig.until(
        lambda: all(
            rig.image(number).configs.get((BROKER_RESOURCE, broker), {}).get(name) == value
            for number in rig.cluster.nodes
            if rig.up(number)
        )
    )


async def send(rig: Rig, number: int, index: int, size: int) -> int:
    """One record of about that size to the partition's leader."""
    batch = encode_batch([Record(0, 1, b"", bytes(size))])
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index, batch)])
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])
    where = (rig.cluster.nodes[number].name, CLIENT_PORT)
    answer = await rig.client().call(where, request, ProduceResponse, PRODUCE_VERSION)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def test_a_limit_of_one_broker_holds_there_over_a_restart_and_until_it_is_taken_away() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic("t", 3, 1)
        led = {rig.view("t", index).leader: index for index in range(3)}
        assert sorted(led) == [1, 2, 3]
        name = "message.max.bytes"
        await change(rig, "", name, "20000")
        await change(rig, "2", name, "10000")
        assert await send(rig, 2, led[2], 15_000) == ErrorCode.MESSAGE_TOO_LARGE
        assert await send(rig, 3, led[3], 15_000) == ErrorCode.NONE
        assert await send(rig, 3, led[3], 25_000) == ErrorCode.MESSAGE_TOO_LARGE
        await asyncio.sleep(2 * SYNC_INTERVAL_MS / 1000)  # the image that it starts with has it
        await rig.restart(2)
        await rig.until(lambda: rig.view("t", led[2]).leader == 2)
        assert await send(rig, 2, led[2], 15_000) == ErrorCode.MESSAGE_TOO_LARGE
        await change(rig, "2", name, None)
        assert await send(rig, 2, led[2], 15_000) == ErrorCode.NONE
        await change(rig, "", name, None)
        assert await send(rig, 2, led[2], 25_000) == ErrorCode.NONE

    play(scenario)


def test_the_parts_of_a_broker_go_by_what_was_set_for_it() -> None:
    async def scenario(rig: Rig) -> None:
        def standing(number: int) -> tuple[int, int | None, int]:
            broker = rig.server(number).broker
            assert broker is not None
            assert broker.storage.cleaner is not None
            return (
                broker.network.limits.connections_max,
                broker.storage.cleaner._settings.threads,
                broker.storage._config.integer("producer.id.expiration.ms"),
            )

        before = standing(1)
        await change(rig, "1", "max.connections", "77")
        await change(rig, "1", "log.cleaner.threads", "3")
        await change(rig, "1", "producer.id.expiration.ms", "5000")
        assert standing(1) == (77, 3, 5000)
        assert standing(2) == before
        for read_from in ("log", "image"):
            if read_from == "image":
                await asyncio.sleep(2 * SYNC_INTERVAL_MS / 1000)
            await rig.restart(1)
            assert standing(1) == (77, 3, 5000), read_from
        for name in ("max.connections", "log.cleaner.threads", "producer.id.expiration.ms"):
            await change(rig, "1", name, None)
        assert standing(1) == before

    play(scenario)


def test_a_limit_for_a_host_that_nobody_knows_ends_no_later_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken while the node ran, and is in no file where it could be corrected. Nor is it looked up for other settings' sake."""
    looked_up: list[str] = []

    async def addresses(name: str) -> list[str]:
        looked_up.append(name)
        return []

    monkeypatch.setattr(host_names, "_addresses", addresses)

    async def scenario(rig: Rig) -> None:
        await change(rig, "1", "max.connections.per.ip.overrides", "nobody:7")
        await change(rig, "1", "log.cleaner.threads", "3")
        assert looked_up == ["nobody"]
        await asyncio.sleep(2 * SYNC_INTERVAL_MS / 1000)  # the image that it starts with has it
        await rig.restart(1)
        broker = rig.server(1).broker
        assert broker is not None
        assert broker.network.limits.connections_per_ip_overrides == {"nobody": 7}
        assert looked_up == ["nobody", "nobody"]

    play(scenario)
