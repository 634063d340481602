"""Histories that a correct cluster could have given have no findings; one change to them gives the right one."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ottla.testing.checker import Get, Kind, ListOffsets, Outcome, Produce, Read, Transaction, check
from ottla.testing.checker.operations import FOREVER, AnyOperation, Isolation

KEYS = ("x", "y")
OK, UNKNOWN = Outcome.OK, Outcome.UNKNOWN


class Cluster:
    """One partition that does everything right, and clients of it, in an order that a seed draws."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.time = 0
        self.log: list[tuple[int, Produce]] = []
        self.end = 0
        self.history: list[AnyOperation] = []
        self.aborted: set[str] = set()
        self._numbers = iter(range(1_000_000))
        self._sequences = {name: iter(range(1_000_000)) for name in ("p", "q")}

    def run(self, steps: int) -> list[AnyOperation]:
        for _ in range(steps):
            self.rng.choice(
                [self.produce, self.produce, self.produce, self.read, self.get, self.latest, self.transact]
            )()
        for isolation in Isolation:
            self._read(isolation, 0, self.end, final=True)
        for replica in (1, 2):
            self._read(Isolation.UNCOMMITTED, 0, self.end, final=True, replica=replica)
        return self.history

    def span(self) -> tuple[int, int]:
        begin = self.time + self.rng.randrange(-3, 5)
        self.time = max(self.time, begin) + 5
        return begin, self.time + self.rng.randrange(4)

    def produce(self, transaction: str = "") -> None:
        begin, end = self.span()
        who = self.rng.choice(list(self._sequences))
        each = Produce(
            topic="t",
            partition=0,
            value=f"v{next(self._numbers)}",
            key=None if transaction else self.rng.choice(KEYS),
            producer=who,
            sequence=next(self._sequences[who]),
            transaction=transaction,
            process=who,
            begin=begin,
        )
        is_written, is_told = self.rng.random() < 0.9, self.rng.random() < 0.9
        if is_written:
            self.log.append((self.end, each))
            if is_told:
                each.offset, each.end, each.outcome = self.end, end, OK
            self.end += 1
        self.history.append(each)

    def transact(self) -> None:
        name = f"T{next(self._numbers)}"
        for _ in range(self.rng.randrange(1, 4)):
            self.produce(name)
        commits = self.rng.random() < 0.6
        begin, end = self.span()
        self.history.append(
            Transaction(transaction=name, action="commit" if commits else "abort", begin=begin, end=end, outcome=OK)
        )
        if not commits:
            self.aborted.add(name)
        self.end += 1  # the marker

    def read(self) -> None:
        start = self.rng.randrange(self.end + 1)
        self._read(self.rng.choice(list(Isolation)), start, self.rng.randrange(start, self.end + 1))

    def _read(self, isolation: Isolation, start: int, following: int, **more: Any) -> None:
        begin, end = self.span()
        seen = [
            (offset, each.value)
            for offset, each in self.log
            if start <= offset < following
            and (isolation is Isolation.UNCOMMITTED or each.transaction not in self.aborted)
        ]
        told: dict[str, Any] = {"fresh": following == self.end and not more, "process": "r", "outcome": OK, **more}
        self.history.append(
            Read(
                topic="t",
                partition=0,
                records=seen,
                start=start,
                next=following,
                isolation=isolation,
                begin=begin,
                end=end,
                **told,
            )
        )

    def get(self) -> None:
        key = self.rng.choice(KEYS)
        values = [each.value for _, each in self.log if each.key == key]
        begin, end = self.span()
        self.history.append(
            Get(topic="t", key=key, value=values[-1] if values else None, begin=begin, end=end, outcome=OK)
        )

    def latest(self) -> None:
        begin, end = self.span()
        self.history.append(
            ListOffsets(
                topic="t", partition=0, asked="latest", offset=self.end, begin=begin, end=end, outcome=OK, fresh=True
            )
        )


seeds = st.integers(0, 1_000_000)
sizes = st.integers(0, 60)


@given(seeds, sizes)
def test_a_correct_history_has_no_finding(seed: int, steps: int) -> None:
    report = check(Cluster(seed).run(steps))
    assert report.valid, str(report)


# --- mutations -------------------------------------------------------------------------------------------------------------

Mutation = Callable[[list[AnyOperation], Random], None]


def finals(history: list[AnyOperation]) -> list[Read]:
    return [each for each in history if isinstance(each, Read) and each.final]


def leader(history: list[AnyOperation]) -> Read:
    return next(each for each in finals(history) if each.replica < 0 and each.isolation is Isolation.UNCOMMITTED)


def plain(history: list[AnyOperation]) -> list[Produce]:
    """Acknowledged, of no transaction."""
    found = [each for each in history if isinstance(each, Produce) and each.outcome is OK and not each.transaction]
    assume(found)
    return found


def lose(history: list[AnyOperation], rng: Random) -> None:
    victim = rng.choice(plain(history))
    for each in history:
        if isinstance(each, Read):
            each.records = [one for one in each.records if one[1] != victim.value]


def double(history: list[AnyOperation], rng: Random) -> None:
    victim = rng.choice(plain(history))
    for each in finals(history):
        each.records = [*each.records, (each.next, victim.value)]
        each.next += 1


def swap(history: list[AnyOperation], rng: Random) -> None:
    """Two of one producer, as if all had seen them so."""
    of = [each for each in plain(history) if each.producer == "p"]
    assume(len(of) > 1)
    place = rng.randrange(len(of) - 1)
    one, other = of[place], of[place + 1]
    names = {one.value: other.value, other.value: one.value}
    for each in history:
        if isinstance(each, Read):
            each.records = [(offset, names.get(value, value)) for offset, value in each.records]
        elif isinstance(each, Get) and each.value in names:
            each.value = names[each.value]
    one.offset, other.offset = other.offset, one.offset


def diverge(history: list[AnyOperation], rng: Random) -> None:
    replica = next(each for each in finals(history) if each.replica == 2)
    assume(replica.records)
    place = rng.randrange(len(replica.records))
    replica.records = [one for number, one in enumerate(replica.records) if number != place]


def be_late(history: list[AnyOperation], rng: Random) -> None:
    offset = max(each.offset for each in plain(history))
    late = Read(
        topic="t",
        partition=0,
        process="r",
        outcome=OK,
        begin=10**9,
        end=10**9 + 1,
        fresh=True,
        start=offset,
        next=offset,
    )
    history.append(late)


def invent(history: list[AnyOperation], rng: Random) -> None:
    assume(any(isinstance(each, Produce) for each in history))  # what is in a topic that others wrote is not judged
    for each in finals(history):
        each.records = [*each.records, (each.next, "nobody's")]
        each.next += 1


def move(history: list[AnyOperation], rng: Random) -> None:
    victim = rng.choice(plain(history))
    for each in finals(history):
        rest = [one for one in each.records if one[1] != victim.value]
        each.records, each.next = [*rest, (each.next, victim.value)], each.next + 1


def show_aborted(history: list[AnyOperation], rng: Random) -> None:
    aborted = {each.transaction for each in history if isinstance(each, Transaction) and each.action == "abort"}
    found = [
        each for each in history if isinstance(each, Produce) and each.transaction in aborted and each.outcome is OK
    ]
    assume(found)
    victim = rng.choice(found)
    told = [(victim.offset, victim.value)]
    read = Read(topic="t", partition=0, process="r", outcome=OK, begin=10**9, end=10**9 + 1, records=told)
    read.isolation = Isolation.COMMITTED
    history.append(read)


def skip(history: list[AnyOperation], rng: Random) -> None:
    victim = rng.choice(plain(history))
    told: dict[str, Any] = {"start": victim.offset, "next": victim.offset + 1}
    history.append(Read(topic="t", partition=0, process="r", outcome=OK, begin=10**9, end=10**9 + 1, **told))


def forget(history: list[AnyOperation], rng: Random) -> None:
    """A key is read as it was before its last acknowledged write."""
    last = plain(history)[-1]
    history.append(Get(topic="t", key=last.key or "", value=None, begin=10**9, end=10**9 + 1, outcome=OK))


MUTATIONS: dict[Mutation, Kind] = {
    lose: Kind.LOST,
    double: Kind.DUPLICATED,
    swap: Kind.REORDERED,
    diverge: Kind.DIVERGED,
    be_late: Kind.STALE,
    invent: Kind.PHANTOM,
    move: Kind.OFFSET_CHANGED,
    show_aborted: Kind.ABORTED_READ,
    skip: Kind.SKIPPED,
    forget: Kind.NOT_LINEARIZABLE,
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
@settings(max_examples=30)
@example(seed=1, steps=5)  # begins before the clock's first tick
@given(seed=seeds, steps=st.integers(5, 60))
def test_one_change_gives_the_right_finding(mutation: Mutation, seed: int, steps: int) -> None:
    history = Cluster(seed).run(steps)
    mutation(history, Random(seed))
    found = {each.kind for each in check(history).anomalies}
    assert MUTATIONS[mutation] in found, (seed, steps, found)


@given(seeds)
def test_a_history_is_the_same_in_whatever_order_its_lines_are_written(seed: int) -> None:
    """Who waits longer writes his line later."""
    history = Cluster(seed).run(40)
    Random(seed).shuffle(history)
    assert check(history).valid


def test_a_history_survives_its_way_through_a_file() -> None:
    history = Cluster(7).run(60)
    decoder = msgspec.json.Decoder(list[AnyOperation])
    again = decoder.decode(msgspec.json.encode(history))
    assert check(again).valid
    assert any(each.end == FOREVER for each in again)
