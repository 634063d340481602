"""Faults as data: drawn from a seed, applied, written down, made fewer."""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.runtime.host import Host
from ottla.runtime.simulation import faults as faults_module
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.faults import KINDS, Bundle, Fault, generate, last_end_ms, schedule, shrink
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.run import simulate

NODES = ("broker-1", "broker-2", "broker-3")


def test_the_same_seed_draws_the_same_faults() -> None:
    def draw(seed: int) -> list[Fault]:
        return generate(Random(seed), NODES, count=20, until_ms=60_000, kinds=tuple(KINDS))

    assert draw(1) == draw(1) != draw(2)
    assert last_end_ms(draw(1)) <= 60_000
    assert [fault.time_ms for fault in draw(1)] == sorted(fault.time_ms for fault in draw(1))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_ends_and_leaves_a_working_cluster(kind: str) -> None:
    async def main(host: Host) -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), None, 9092)
        await server.serve_forever()

    async def program(loop: SimulationLoop) -> None:
        for name in NODES:
            loop.create_node(name).start(main)
        await asyncio.sleep(0.1)
        drawn = generate(loop.rng("faults"), NODES, count=30, until_ms=20_000, kinds=(kind,))
        schedule(loop, drawn)
        await asyncio.sleep(last_end_ms(drawn) / 1000 + 1)
        for name in NODES:
            _, writer = await asyncio.open_connection(name, 9092)
            writer.close()
            node = loop.nodes[name]
            assert node.clock.rate == 1.0
            node.platter.check("sync", "/")
        assert not any(link.cut or link.loss for link in loop.network._links.values())

    for seed in range(3):
        simulate(program, seed)


def test_faults_of_one_kind_that_overlap_last_as_long_as_the_longest() -> None:
    async def program(loop: SimulationLoop) -> None:
        one, other = loop.create_node("a"), loop.create_node("b")
        schedule(loop, [Fault(0, "cut", ("a", "b"), 10_000), Fault(1000, "isolate", ("a",), 1000)])
        schedule(loop, [Fault(0, "slow-disk", ("a", 3), 2000), Fault(1000, "slow-disk", ("a", 5), 2000)])
        await asyncio.sleep(2.5)
        assert one.slowness == 5
        await asyncio.sleep(2.5)
        assert loop.network.link(one, other).cut
        assert not loop.network.link(other, one).cut
        assert one.slowness == 1
        await asyncio.sleep(6)
        assert not loop.network.link(one, other).cut

    simulate(program, 1)


def test_a_power_cut_brings_nothing_back_of_what_was_wiped() -> None:
    async def program(loop: SimulationLoop) -> None:
        node = loop.create_node("a")
        disk = SimulatedDisk(node.platter)
        disk.make_directories("/data/metadata")
        for name in "one", "two":
            disk.write_atomically(f"/data/metadata/{name}", b"x")
        node.platter.sync_everything()
        schedule(loop, [Fault(0, "wipe", ("a", "/data/metadata"), 100), Fault(10, "crash", ("a",), 10)])
        await asyncio.sleep(0.05)
        assert not SimulatedDisk(node.platter).exists("/data/metadata")

    for seed in range(20):
        simulate(program, seed)


def test_a_program_that_gave_up_on_its_disk_is_started_again_when_the_disk_is_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(host: Host) -> None:
        while True:
            host.disk.write_atomically("/state", b"x")
            await asyncio.sleep(1)

    async def program(loop: SimulationLoop) -> list[bool]:
        node = loop.create_node("a")
        node.start(main)
        schedule(loop, [Fault(500, "broken-disk", ("a", "/", "sync"), 5000), Fault(3000, "kill", ("a",), 5500)])
        alive = []
        for _ in range(5):
            await asyncio.sleep(2)
            alive.append(node.process is not None)
        return alive

    assert simulate(program, 1) == [False, False, False, False, True]
    assert "Input/output error" in caplog.text


def test_a_bundle_survives_its_journey_through_a_file() -> None:
    drawn = generate(Random(5), NODES, count=50, until_ms=60_000, kinds=tuple(KINDS))
    bundle = Bundle("quorum", 5, tuple(drawn), "two leaders in epoch 3")
    assert Bundle.from_json(bundle.to_json()) == bundle


FAULTS = [Fault(number, "kill", ("broker-1",), 1) for number in range(40)]


@given(st.sets(st.sampled_from(range(40)), max_size=6))
def test_shrinking_finds_exactly_the_faults_that_matter(needed: set[int]) -> None:
    def fails(faults: list[Fault]) -> bool:
        return needed <= {fault.time_ms for fault in faults}

    assert {fault.time_ms for fault in shrink(FAULTS, fails)} == needed


def test_shrinking_needs_far_fewer_runs_than_there_are_faults_squared() -> None:
    runs = 0

    def fails(faults: list[Fault]) -> bool:
        nonlocal runs
        runs += 1
        return FAULTS[13] in faults

    assert shrink(FAULTS, fails) == [FAULTS[13]]
    assert runs < 30


def test_every_kind_is_explained() -> None:
    assert all(begin.__doc__ for begin in faults_module.KINDS.values())
