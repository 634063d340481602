"""Members of both protocols that come and go as they like, while writes fail and coordinators change: no partition is read by two, and
when all is quiet everything is read, in a group of the kind that its members make it."""

from random import Random
from typing import Any

import pytest

from ottla.broker.coordinator.decisions.groups.embedded_protocol import (
    read_assignment,
    read_subscription,
    written_assignment,
)
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import Asked
from tests.unit.broker.coordinator.groups.migration.migration_bench import MigrationBench, Modern
from tests.unit.broker.coordinator.groups.subscribing import written_subscription

STEPS, QUIET_ROUNDS = 120, 120
PARTITIONS = range(4)
_LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH)


class ClassicClient:
    """Sends a request, and goes on when its answer is there. It may wait for long: others have to join first."""

    def __init__(self, bench: MigrationBench, *, cooperative: bool) -> None:
        self.bench, self.cooperative = bench, cooperative
        self.id, self.generation = "", -1
        self.owned: set[int] = set()
        self.joining: Asked | None = None
        self.syncing: Asked | None = None
        self.must_join = True

    def go_on(self) -> None:
        if self.joining is not None:
            self._hear_joined()
        elif self.syncing is not None:
            self._hear_synced()
        elif self.must_join:
            self._join()
        else:
            self._handle(self.bench.heartbeat(self.id, self.generation))

    def forget_answers(self) -> None:
        self.must_join = self.must_join or self.joining is not None or self.syncing is not None
        self.joining = self.syncing = None

    def leave(self) -> None:
        self.owned = set()
        if self.id:
            self.bench.leave(self.id)

    def _join(self) -> None:
        if not self.cooperative:
            self.owned = set()
        owned = {"t": sorted(self.owned)} if self.owned else {}
        self.joining = self.bench.join(
            self.id, metadata=written_subscription(["t"], owned, version=1), rebalance_ms=20_000
        )

    def _hear_joined(self) -> None:
        asked = self.joining
        assert asked is not None
        if asked.waits:
            return
        self.joining = None
        if asked.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = asked.said.member_id
        if not self._handle(asked.error):
            return
        self.must_join = False
        self.id, self.generation = asked.said.member_id, asked.said.generation_id
        dealt = self._deal(asked) if asked.said.leader == self.id else {}
        brought: dict[str, Any] = {
            each.replace("-", "_"): written_assignment(1, {"t": held}) for each, held in dealt.items()
        }
        self.syncing = self.bench.sync(self.id, self.generation, **brought)

    def _hear_synced(self) -> None:
        asked = self.syncing
        assert asked is not None
        if asked.waits:
            return
        self.syncing = None
        if self._handle(asked.error):
            assigned = set(read_assignment(asked.said.assignment).partitions.get("t", ()))
            self.must_join = self.cooperative and not self.owned <= assigned
            self.owned = assigned

    def _handle(self, error: ErrorCode) -> bool:
        if error in _LOST:
            self.owned = set()
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.id = ""
        if error:
            self.must_join = True
        return not error

    def _deal(self, asked: Asked) -> dict[str, set[int]]:
        """What another owns is taken away first, and given in the rebalance after it."""
        owned = {
            each.member_id: set(read_subscription(each.metadata).owned.get("t", ())) for each in asked.said.members
        }
        share = -(-len(PARTITIONS) // len(owned))
        dealt = {each: set(sorted(held)[:share]) for each, held in owned.items()}
        for partition in set(PARTITIONS).difference(*owned.values()):
            min(dealt.values(), key=len).add(partition)
        return dealt


class ModernClient(Modern):
    """Begins anew when it is fenced. Says everything when it does not know whether it was heard."""

    is_unsure = False

    def go_on(self) -> None:
        asked = self.ask(says_everything=self.is_unsure)
        self.is_unsure = asked.waits or bool(asked.error)
        if asked.waits:
            return
        if asked.error in _LOST:
            self.epoch, self.owned = 0, set()
        elif asked.error is ErrorCode.NONE:
            self.heard(asked)

    def forget_answers(self) -> None:
        """It waits for none."""


Client = ClassicClient | ModernClient


class World:
    """A group, its members, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.cooperative = bool(seed % 2)
        self.bench = MigrationBench()
        self.clients: list[Client] = []
        self._names = 0

    def step(self) -> None:
        actions = [self.go_on] * 24 + [self.pass_time] * 8 + [self.come] * 2
        self.rng.choice([*actions, self.leave, self.vanish, self.fail_writes, self.take_over])()
        self.check()

    def go_on(self) -> None:
        if self.clients:
            self.rng.choice(self.clients).go_on()

    def pass_time(self) -> None:
        """Everybody is heard from in time, but for those that wait."""
        for _ in range(self.rng.randrange(4)):
            self.bench.wait(700)
            for each in self.clients:
                each.go_on()
                self.check()

    def come(self) -> None:
        if len(self.clients) < 5:
            self._names += 1
            is_modern = self.rng.random() < 0.4
            classic = ClassicClient(self.bench, cooperative=self.cooperative)
            self.clients.append(ModernClient(self.bench, f"modern{self._names}") if is_modern else classic)

    def leave(self) -> None:
        if self.clients:
            self.clients.pop(self.rng.randrange(len(self.clients))).leave()

    def vanish(self) -> None:
        if self.clients:
            self.clients.pop(self.rng.randrange(len(self.clients)))

    def fail_writes(self) -> None:
        self.bench.commits = False
        for _ in range(self.rng.randrange(1, 6)):
            self.go_on()
        self.bench.fail()
        self.bench.commits = True

    def take_over(self) -> None:
        if self.rng.random() < 0.5:
            return
        self.bench = MigrationBench.taken_over(self.bench)
        for each in self.clients:
            each.bench = self.bench
            each.forget_answers()

    def check(self) -> None:
        """Who is no member any more, and does not know it yet, is not counted."""
        consumers, classic = self.bench.shard.consumers.find("g"), self.bench.shard.find("g")
        assert consumers is None or classic is None
        members = {**(consumers.members if consumers else {}), **(classic.members if classic else {})}
        owned = [partition for each in self.clients if each.id in members for partition in each.owned]
        assert len(owned) == len(set(owned)), "a partition has two owners"

    def rest(self) -> None:
        if not self.clients:
            self.come()
        for _ in range(QUIET_ROUNDS):
            self.bench.wait(700)
            for each in self.clients:
                each.go_on()
                self.check()
        owned = sorted(partition for each in self.clients for partition in each.owned)
        assert owned == list(PARTITIONS), [(type(each).__name__, each.id, each.owned) for each in self.clients]
        has_modern = any(isinstance(each, ModernClient) for each in self.clients)
        assert (self.bench.shard.consumers.find("g") is not None) == has_modern


@pytest.mark.parametrize("seed", range(40))
def test_no_partition_is_read_by_two_and_in_the_end_all_are_read(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.rest()
