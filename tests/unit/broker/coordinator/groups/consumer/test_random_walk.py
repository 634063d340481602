"""Members that do anything at any time, with answers that are lost, writes that fail and coordinators that change: no partition is
read by two, what the coordinator has is what its records say, and when all is quiet everybody comes to the target."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from ottla.broker.coordinator.decisions.effects import Done, Record
from ottla.broker.coordinator.decisions.groups.assignors import pieces
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroupState
from ottla.broker.coordinator.decisions.groups.consumer.member import MemberState
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.consumer.consumer_bench import (
    INTERVAL_MS,
    REBALANCE_MS,
    Member,
    Parts,
    T,
    U,
    beat,
    join,
    places,
)
from tests.unit.broker.coordinator.groups.group_bench import Asked, Bench

STEPS = 150
SUBSCRIPTIONS = (("t",), ("u",), ("t", "u"), ("t", "nix"))


class Walker(Member):
    """Answers come when they come, or never; until a member knows that it was fenced or its session has ended, it goes on reading."""

    waiting: Asked | None = None
    heard_ms = 0

    def send(self) -> None:
        said: dict[str, Any] = {"instance_id": self.instance_id}
        if not self.is_in:
            self.epoch, self.owned = 0, {}
            self.waiting = join(self.bench, self.id, self.topics, **said)
        else:
            if self.is_unsure:
                said |= {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": list(self.topics)}
            self.waiting = beat(self.bench, self.id, self.epoch, owned=self.owned, **said)

    is_unsure = False
    """It does not know whether its last request was heard, so it says everything."""

    def receive(self) -> None:
        asked, self.waiting = self.waiting, None
        if asked is None or asked.waits:
            self.is_unsure = True
            return
        self.is_unsure = bool(self.hear(asked))
        self.heard_ms = self.bench.clock_ms


class World:
    """A shard and its members."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.bench = Bench(consumer_assignment_interval_ms=self.rng.choice((0, INTERVAL_MS)))
        self.walkers: list[Walker] = []
        self.gone: list[Walker] = []
        """They stopped without a word, and read until their sessions have ended."""
        self._names = 0
        self.max_epochs: dict[str, int] = {}

    def step(self) -> None:
        actions = (
            *[self.beat] * 12,
            *[self.pass_time] * 4,
            self.come,
            self.come,
            self.leave,
            self.die,
            self.resubscribe,
            self.lose_an_answer,
            self.be_overtaken,
            self.fail_writes,
            self.refuse_a_write,
            self.take_over,
            self.grow,
        )
        self.rng.choice(actions)()
        self.check()

    def pick(self) -> Walker | None:
        return self.rng.choice(self.walkers) if self.walkers else None

    def come(self) -> None:
        self._names += 1
        instance_id = f"i{self.rng.randrange(3)}" if self.rng.random() < 0.3 else None
        if any(each.instance_id == instance_id is not None for each in self.walkers):
            instance_id = None
        if len(self.walkers) < 6:
            member = Walker(self.bench, f"m{self._names}", self.rng.choice(SUBSCRIPTIONS), instance_id)
            self.walkers.append(member)

    def beat(self) -> None:
        member = self.pick()
        if member is not None:
            member.send()
            member.receive()

    def lose_an_answer(self) -> None:
        member = self.pick()
        if member is not None:
            member.send()
            member.waiting = None
            member.is_unsure = True

    def be_overtaken(self) -> None:
        """A request comes from a connection that the member has left, after it was told everything on another: nobody hears the answer."""
        member = self.pick()
        if member is not None and member.is_in and not member.is_unsure:
            beat(self.bench, member.id, member.epoch, owned=member.owned, instance_id=member.instance_id)

    def leave(self) -> None:
        member = self.pick()
        if member is not None and self.rng.random() < 0.5:
            self.walkers.remove(member)
            member.leave(-2 if member.instance_id is not None and self.rng.random() < 0.5 else -1)

    def die(self) -> None:
        member = self.pick()
        if member is not None and self.rng.random() < 0.3:
            self.walkers.remove(member)
            self.gone.append(member)

    def resubscribe(self) -> None:
        member = self.pick()
        if member is not None:
            member.topics, member.is_unsure = self.rng.choice(SUBSCRIPTIONS), True

    def pass_time(self) -> None:
        self.bench.wait(self.rng.choice((100, INTERVAL_MS, 5_000)))

    def fail_writes(self) -> None:
        """Several requests in one turn, of which only the first steps are written."""
        self.bench.commits = False
        for _ in range(self.rng.randrange(1, 4)):
            member = self.pick()
            if member is not None and member.waiting is None:
                member.send()
        self.bench.fail(but=self.rng.choice((0, 0, 1, 2, 3)))
        self.bench.commit()
        for member in self.walkers:
            if member.waiting is not None:
                member.receive()
        self.bench.commits = True

    def refuse_a_write(self) -> None:
        """One step of a request fits in no batch, say."""
        bench, left = self.bench, self.rng.randrange(3)
        write = bench.write

        def writes(records: Sequence[Record], done: Done) -> None:
            nonlocal left
            left -= 1
            if left < 0 and records:
                done(ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                write(records, done)

        bench.write = writes  # type: ignore[method-assign]
        self.beat()
        del bench.write

    def take_over(self) -> None:
        before = self.bench.shard.contents()
        for _ in self.bench.shard.end(ErrorCode.NOT_COORDINATOR):
            pass
        self.bench = self.bench.another()
        assert self.bench.shard.contents() == before
        for each in (*self.walkers, *self.gone):
            each.bench = self.bench

    def grow(self) -> None:
        topic, name = self.rng.choice(((T, "t"), (U, "u")))
        if self.bench.partitions[topic] < 12:
            self.bench.partitions[topic] += 1
            self.bench.shard.consumers.refresh({name})

    # --- what is always so --------------------------------------------------------------------------------------------

    def check(self) -> None:
        group = self.bench.shard.consumers.find("g")
        if self.rng.random() < 0.3:
            assert self.bench.shard.contents() == self.bench.another().shard.contents()
        known = group.members if group is not None else {}
        self.gone = [each for each in self.gone if each.id in known]
        readers = [each for each in (*self.walkers, *self.gone) if each.is_in and each.id in known]
        taken = [(place, each.id) for each in readers for place in each.places]
        assert len({place for place, _ in taken}) == len(taken), f"two read the same: {sorted(taken)}"
        for each in readers:
            member = known[each.id]
            held = places(held_of(member.assigned)) | places(held_of(member.revoking))
            assert each.places <= held, f"{each.id} reads what the coordinator does not know of"
        if group is not None:
            assert self.max_epochs.get("group", 0) <= group.epoch
            assert group.assignment_epoch <= group.epoch
            self.max_epochs["group"] = group.epoch
            for member in known.values():
                assert member.epoch <= group.assignment_epoch
                assert not (member.revoking and member.state is not MemberState.UNREVOKED_PARTITIONS)

    def beat_all(self, rounds: int, wait_ms: int) -> None:
        for _ in range(rounds):
            for each in self.walkers:
                each.send()
                each.receive()
            self.bench.wait(wait_ms)

    def agree(self) -> None:
        """Whatever its last request came to, a member soon reads what the coordinator takes it to read, and no session has to end for that."""
        self.beat_all(4, INTERVAL_MS)
        group = self.bench.shard.consumers.find("g")
        for each in self.walkers:
            if not each.is_in:  # its instance is another's yet, who died
                continue
            assert group is not None
            assert each.places == places(held_of(group.members[each.id].assigned)), each.id

    def settle(self) -> None:
        self.agree()
        self.bench.wait(REBALANCE_MS)
        self.beat_all(12, INTERVAL_MS)
        self.check()
        group = self.bench.shard.consumers.find("g")
        if not self.walkers:
            return
        assert group is not None
        self.beat_all(12, 5_000)  # those that died hold nothing for longer than a session
        assert group.state is ConsumerGroupState.STABLE
        assert sorted(group.members) == sorted(each.id for each in self.walkers)
        read = {place for each in self.walkers for place in each.places}
        topics = {name for each in self.walkers for name in each.topics if name in self.bench.topic_ids}
        every = {
            (self.bench.topic_ids[name], each)
            for name in topics
            for each in range(self.bench.partitions[self.bench.topic_ids[name]])
        }
        assert read == every
        for each in self.walkers:
            assert each.owned == group.targets[each.id]


def held_of(held: object) -> Parts:
    assert hasattr(held, "items")
    return {topic: list(partitions) for topic, partitions in held.items()}


@pytest.mark.parametrize("seed", range(40, 70))
def test_nor_where_targets_come_in_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_STEPS", 2 ** (seed % 5))
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()


@pytest.mark.parametrize("seed", range(40))
def test_no_partition_is_read_by_two_and_everybody_comes_to_the_target(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
