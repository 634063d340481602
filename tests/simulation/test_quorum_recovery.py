"""`ottla quorum recover` on a node whose disk fails it: whatever operation fails, or is the last before a power cut, the walk is done again
and ends as it would have."""

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from ottla.broker.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.broker.wire.messages.update_features_response import UpdateFeaturesResponse
from ottla.cli.failures import is_expected
from ottla.cli.output import Row
from ottla.cli.quorum_recovery import describe_node, execute_node
from ottla.runtime.host import Host
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.simulation.backup import Backup, back_up, put_back
from ottla.runtime.simulation.crash import SimulatedCrash
from ottla.runtime.simulation.disk import SimulatedDisk
from ottla.runtime.simulation.loop import SimulationLoop
from ottla.runtime.simulation.platter import Platter
from ottla.runtime.simulation.run import simulate
from ottla.runtime.simulation.store import SimulatedStore
from ottla.runtime.sync_later import SyncLater
from ottla.testing.simulation.cluster import SimulatedCluster
from tests.simulation.conftest import Rig, play

OPERATIONS_MAX = 500
STATIC, IN_LOG = 0, 1


def disk_with(backup: Backup, seed: int) -> Platter:
    platter = Platter.seeded(seed)
    put_back(platter, backup)
    return platter


class PersonsClock:
    """Of who works on a stopped node."""

    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 1_700_000_000_000


def host_on(platter: Platter) -> Host:
    """A process of its own."""
    platter.close_sessions()
    disk = SimulatedDisk(platter)
    return Host(PersonsClock(), Random(1), disk, partial(SimulatedStore, disk), SyncLater())


class Left:
    """What a cluster of three left on its first node's disk."""

    def __init__(self, kraft_version: int) -> None:
        self.backup: Backup = {}
        self.config: ServerConfig
        self.topics: list[str] = []

        async def life(rig: Rig) -> None:
            await rig.topic("kept", 2, 3)
            if kraft_version == IN_LOG:
                update = UpdateFeaturesRequest(10_000, [FeatureUpdateKey("kraft.version", 1, upgrade_type=1)])
                assert (await rig.client().ask_any(update, UpdateFeaturesResponse)).error_code == 0
            await rig.until(lambda: all("kept" in rig.image(number).topics_by_name for number in (1, 2, 3)))
            for node in rig.cluster.nodes.values():
                node.kill()
            self.backup = back_up(rig.cluster.nodes[1].platter)
            self.config = rig.cluster._configs[1]

        play(life)

    def disk(self, seed: int) -> Platter:
        return disk_with(self.backup, seed)

    def describe(self, platter: Platter) -> Row:
        return describe_node(self.config, host_on(platter))

    def execute(self, platter: Platter) -> Row:
        return execute_node(self.config, host_on(platter))


@pytest.fixture(scope="module", params=[STATIC, IN_LOG], ids=["kraft.version 0", "kraft.version 1"])
def left(request: pytest.FixtureRequest) -> Left:
    return Left(request.param)


def leads_alone(backup: Backup) -> None:
    """The node starts, leads with nobody else there, and knows what it knew."""

    async def program(loop: SimulationLoop) -> None:
        cluster = SimulatedCluster(loop, nodes=3)
        put_back(cluster.nodes[1].platter, backup)
        cluster.nodes[1].start(lambda host: cluster._main(1, host))
        deadline = loop.time() + 30
        while loop.time() < deadline:
            await asyncio.sleep(0.05)
            server = cluster.running(1)
            if (
                server is not None
                and server.controller is not None
                and server.controller.is_active
                and server.quorum is not None
            ):
                assert "kept" in server.controller._loader.image.topics_by_name
                assert server.quorum.members().voters == (1,)
                return
        raise AssertionError("it does not lead")

    simulate(program, 3, limit_s=60)


Plant = Callable[[Platter, int], Callable[[], bool]]
"""Has the nth operation fail; the answer calls it off, and says whether it has come."""


def failing(error: int, written: float = 0.0) -> Plant:
    return lambda platter, number: platter.fail_once(number, error, written=written)


def cut(platter: Platter, number: int) -> Callable[[], bool]:
    before = platter.operations

    def called_off() -> bool:
        came = platter.operations >= before + number
        platter.cancel_crash()
        return came

    platter.crash_at_operation(number)
    return called_off


def is_done(left: Left, platter: Platter) -> bool:
    """False where it ended with a line for people, or with the machine."""
    try:
        left.execute(platter)
    except SimulatedCrash:
        return False
    except Exception as error:
        if not is_expected(error):
            raise
        return False
    return True


@pytest.mark.parametrize(
    "plant", [failing(errno.EIO), failing(errno.ENOSPC, written=0.5), cut], ids=["EIO", "ENOSPC", "power cut"]
)
def test_whatever_operation_fails_the_walk_is_done_again(left: Left, plant: Plant) -> None:
    before = left.describe(left.disk(1))
    refused = 0
    for number in range(1, OPERATIONS_MAX):
        platter = left.disk(number)
        called_off = plant(platter, number)
        refused += not is_done(left, platter)
        if not called_off():
            break
        seen = left.describe(platter)
        assert seen["end offset"] >= before["end offset"], f"records were lost in operation {number}"
        done = left.execute(platter)
        assert done["voters"] == [1], f"after operation {number}"
        assert done["epoch"] > max(seen["promised epoch"], seen["last epoch"])
        assert done["end offset"] > seen["end offset"]
        platter.power_loss()
        after = left.describe(platter)
        assert (after["voters"], after["promised epoch"]) == ([1], done["epoch"]), "it was told as done"
        if number % 10 == 0:
            leads_alone(back_up(platter))
    else:
        raise AssertionError(f"not over after {OPERATIONS_MAX} operations")
    assert refused > 10


def test_on_a_full_disk_it_is_refused_and_done_when_there_is_room(left: Left) -> None:
    """What is opened gives some bytes back, which may do."""
    refused = 0
    for share in (0.0, 0.5, 0.9, 0.95, 0.98, 0.99, 1.0):
        platter = left.disk(1)
        platter.capacity_bytes = int(share * platter.used_bytes)
        if is_done(left, platter):
            break
        refused += 1
        platter.capacity_bytes = 1 << 40
        assert left.execute(platter)["voters"] == [1]
        leads_alone(back_up(platter))
    assert refused, "a full disk was no hindrance"
