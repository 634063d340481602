"""Disks that lie in time: one goes back to a copy of some day, or is new.

Within what docs/quorum.md promises ("Lost disks") that costs nothing: it happens once all is read back, while every voter is up and
holds all there is, and then all is read back again. Outside of it what was acknowledged may be lost, and in some seeds it is: while one
controller was away, another forgot what it had committed with the third. Then nothing is asked but that all nodes go by one history, the
one that was acknowledged last, and that each image is what its log says.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from ottla.broker.metadata_storage import SYNC_INTERVAL_MS
from ottla.broker.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.broker.wire.messages.update_features_response import UpdateFeaturesResponse
from ottla.runtime.errors import ErrorCode
from ottla.runtime.simulation.backup import Backup, back_up, put_back
from ottla.testing.simulation.client import Unreachable
from ottla.testing.simulation.cluster import DATA
from ottla.testing.simulation.dimension import Dimension
from ottla.testing.simulation.metadata_at_rest import odd_images
from ottla.testing.simulation.new_disks import renew
from ottla.testing.simulation.workload import BrokenPromise, check_history, create_topic, read_partition

BACKUP, NEW = "a backup", "a new disk"
REFUSALS = ("two leaders in one epoch", "asked to truncate committed records")
RETRY_S = 0.1
UP_S = 20.0


class OldDisks(Dimension):
    name = "disks"
    one_in = 8
    settings: Mapping[str, str] = {"metadata.max.retention.bytes": "1000000000"}
    """Who cut its log behind what is lost does not start any more: that is a test of its own."""

    _copy: Backup | None = None
    _safe = _lost = 0

    def users(self) -> Iterable[Coroutine[Any, Any, None]]:
        self._number = self.rng.randint(1, 3)
        return [self._copy_some_day(self.rng.uniform(0.0, 6.0))]

    async def _copy_some_day(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        self._copy = back_up(self.run.cluster.nodes[self._number].platter)

    async def epilogue(self) -> None:
        if self.rng.random() < 0.5:
            await self._name_the_voters()
        await self._replace_one()
        if self.rng.random() < 0.5:
            await self._lose_a_history()

    def counts(self) -> Mapping[str, int]:
        return {"disks replaced": self._safe, "histories lost": self._lost}

    # --- as promised --------------------------------------------------------------------------------------------------

    async def _replace_one(self) -> None:
        """In a quorum whose log names the voters, another directory would not vote: there the disk goes back."""
        number = self._number
        platter = self.run.cluster.nodes[number].platter
        self.run.cluster.nodes[number].kill()
        backup = self._copy or back_up(platter)
        if not self._named and self.rng.random() < 0.5:
            backup = self._new_disk(number)
        put_back(platter, backup)
        self.run.invariants.metadata_wiped(number)
        await self._start(number)
        await self.run.until(self._not_in_sync, "a broker whose disk was replaced is in sync", UP_S)
        client = self.run.client()
        for producer in self.run.producers:
            history = producer.history
            found = await read_partition(client, history.topic, history.partition)
            check_history(history, found, self.run.invariants.committed(history.topic, history.partition).may_lack)
        self._safe += 1

    def _not_in_sync(self) -> str:
        for topic in self.run.invariants.metadata.topics_by_id.values():
            for index, view in topic.partitions.items():
                if len(view.isr) < len(view.replicas):
                    return f"{topic.name}-{index}: {view.isr} of {view.replicas}"
        return ""

    def _new_disk(self, number: int) -> Backup:
        platter = self.run.cluster.nodes[number].platter
        renew(platter, DATA, DATA, self.rng)
        return back_up(platter)

    # --- not as promised ----------------------------------------------------------------------------------------------

    async def _lose_a_history(self) -> None:
        """Two commit, the third is away; one of the two forgets; those two that do not know go on, and then the one that does comes
        back. Whoever led before may be any of them, so that the lost history may have elected somebody, or not."""
        rng, nodes = self.rng, self.run.cluster.nodes
        keeper, away, forgetful = rng.sample((1, 2, 3), 3)
        witnesses = [number for number in nodes if number > 3]  # plain brokers: who runs on with what is lost, ends
        self.run.invariants.history_is_lost()
        nodes[away].kill()
        backup = back_up(nodes[forgetful].platter)
        await self._create("gone", rng.randint(1, 6))
        await asyncio.sleep(rng.choice((0.0, 2 * SYNC_INTERVAL_MS / 1000)))
        for number in (keeper, forgetful, *witnesses):
            nodes[number].kill()
        if not self._named and rng.random() < 0.5:
            backup = self._new_disk(forgetful)
        put_back(nodes[forgetful].platter, backup)
        await self._start(away, forgetful)
        known = await self._create("other", rng.randint(0, 8))
        await self._bring_back(keeper, away, forgetful)
        await self._start(*witnesses)
        known += await self._create("after", 1)
        await self.run.until(self._apart, "all nodes go by one history", UP_S)
        image = self.run.invariants.metadata
        missing = [name for name in known if name not in image.topics_by_name]
        if missing:
            raise BrokenPromise(f"topics {missing} were created after the disk was lost, and are gone too")
        self._lost += 1

    async def _bring_back(self, keeper: int, *others: int) -> None:
        """It may know of another leader in the epoch of the others, and then it ends and says so, or they do when they hear of it,
        until they have a later one."""
        cluster, failures = self.run.cluster, self.run.loop.unhandled
        life = cluster.lives[keeper]
        cluster.nodes[keeper].restart()
        while not (failures or (cluster.lives[keeper] > life and self._go_together(keeper, *others))):  # noqa: ASYNC110 - as `Run.until`, to which a failure ends it
            await asyncio.sleep(RETRY_S)
        if failures and any(refusal in str(failures[0]["exception"]) for refusal in REFUSALS):
            failures.clear()
            cluster.nodes[keeper].kill()
            await self._start(*(number for number in others if not self._is_up(number)))
            for number in others:
                await self._start(number)
            await self._start(keeper)

    def _go_together(self, *numbers: int) -> bool:
        """They run, and their images end at the same offset."""
        servers = self.run.servers
        offsets = {servers[number].context.image.offset for number in numbers if number in servers}
        return all(map(self._is_up, numbers)) and len(offsets) == 1

    def _is_up(self, number: int) -> bool:
        server = self.run.cluster.running(number)
        return server is not None and server.ready.is_set()

    def _apart(self) -> str:
        servers = self.run.servers
        offsets = {server.context.image.offset for server in servers.values()}
        if len(servers) < len(self.run.cluster.nodes) or len(offsets) > 1:
            return f"images end at {sorted(offsets)}"
        return "; ".join(odd_images(self.run.cluster))

    # --- both ---------------------------------------------------------------------------------------------------------

    _named = False

    async def _name_the_voters(self) -> None:
        """From here on the log says who votes, by directory."""
        client = self.run.client()
        request = UpdateFeaturesRequest(1500, [FeatureUpdateKey("kraft.version", 1, upgrade_type=1)])
        while not self._named:
            try:
                answer = await client.ask_any(request, UpdateFeaturesResponse)
                self._named = answer.error_code == ErrorCode.NONE
            except Unreachable:
                pass
            await asyncio.sleep(RETRY_S)

    async def _create(self, name: str, count: int) -> list[str]:
        topics = [f"{name}-{number}" for number in range(count)]
        client = self.run.client()
        for topic in topics:
            await create_topic(client, topic, 1, 1)
        return topics

    async def _start(self, *numbers: int) -> None:
        """And waits until they take requests."""
        cluster = self.run.cluster
        lives = dict(cluster.lives)
        for number in numbers:
            cluster.nodes[number].restart()

        def waiting() -> str:
            up = [number for number in numbers if cluster.lives[number] > lives[number] and self._is_up(number)]
            return "" if len(up) == len(numbers) else f"of {numbers} only {up} are up"

        await self.run.until(waiting, "a node starts on another disk", UP_S)


DIMENSION = OldDisks
