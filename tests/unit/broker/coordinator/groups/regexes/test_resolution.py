"""When regular expressions of groups are matched with topics, and what that costs everybody else."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import pytest

from ottla.broker.coordinator.decisions.effects import Done, Record
from ottla.broker.coordinator.decisions.groups.regexes import resolution
from ottla.broker.coordinator.decisions.groups.regexes.resolution import Found, Resolution, Resolved

INTERVAL_MS = 600_000


@dataclass
class Group:
    regexes: set[str] = field(default_factory=set)
    resolved: dict[str, Resolved] = field(default_factory=dict)


class Bench:
    """Some groups, some topics, and a clock."""

    def __init__(self, *topics: str, **groups: str) -> None:
        self.topics = list(topics)
        self.version = 1
        self.groups = {name: Group({regex}) for name, regex in groups.items()}
        self.writes = True
        self.clock_ms = self.time_ms = 1_000_000
        self.reminded = 0
        self.told: list[tuple[str, set[str]]] = []
        """Group, and the expressions of a round."""
        self._reminders: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        self.resolution = Resolution(self, self, INTERVAL_MS, self.groups.get, self._tell)

    def _tell(self, group_id: str, found: Found) -> None:
        self.told.append((group_id, set(found)))
        if self.writes:
            self.groups[group_id].resolved.update(found)

    def names(self) -> list[str]:
        return list(self.topics)

    def new_id(self) -> str:
        raise NotImplementedError

    def write(self, records: Sequence[Record], done: Done) -> None:
        raise NotImplementedError

    def note(self, fact: str) -> None:
        raise NotImplementedError

    def remind(self, name: Hashable, in_ms: int, call: Callable[[], None]) -> None:
        self.reminded += 1
        self._reminders[name] = self.clock_ms + max(in_ms, 0), call

    def soon(self, call: Callable[[], None]) -> None:
        call()

    def forget(self, name: Hashable) -> None:
        self._reminders.pop(name, None)

    @property
    def reminders(self) -> int:
        return len(self._reminders)

    def wait(self, by_ms: int = 0) -> int:
        """How many reminders came."""
        end_ms, turns = self.clock_ms + by_ms, 0
        while due := [(at_ms, str(name), name) for name, (at_ms, _) in self._reminders.items() if at_ms <= end_ms]:
            at_ms, _, name = min(due)
            self.clock_ms = at_ms
            self._reminders.pop(name)[1]()
            turns += 1
            assert turns < 1_000, "it spins"
        self.clock_ms = end_ms
        return turns

    def topics_of(self, group: str) -> set[str]:
        return {each for found in self.groups[group].resolved.values() for each in found.topics}

    def create(self, topic: str) -> None:
        self.topics.append(topic)
        self.version += 1
        self.resolution.topics_changed(self.groups)


def test_a_new_expression_is_resolved_at_once() -> None:
    bench = Bench("a1", "a2", "b", g="a.*")
    bench.resolution.look_at("g")
    bench.wait()
    assert bench.groups["g"].resolved == {"a.*": Resolved(frozenset({"a1", "a2"}), 1, bench.time_ms)}


def test_another_one_is_resolved_at_once_and_alone() -> None:
    bench = Bench("a1", "b", g="a.*")
    bench.resolution.look_at("g")
    bench.wait()
    bench.groups["g"].regexes.add("b.*")
    bench.resolution.look_at("g")
    bench.wait()
    assert bench.told == [("g", {"a.*"}), ("g", {"b.*"})]


def test_a_heartbeat_of_a_group_whose_expressions_are_resolved_costs_nothing() -> None:
    bench = Bench("a1", g="a.*")
    bench.resolution.look_at("g")
    bench.wait()
    for _ in range(3):
        bench.resolution.look_at("g")
    assert not bench.wait(100)


def test_a_topic_that_came_is_found_but_rounds_are_ten_seconds_apart() -> None:
    bench = Bench("a1", g="a.*")
    bench.resolution.look_at("g")
    bench.wait(20_000)
    bench.create("a2")
    bench.wait()
    assert bench.topics_of("g") == {"a1", "a2"}
    for number in range(100):
        bench.create(f"a3{number}")
        bench.wait(50)
    assert len(bench.told) == 2
    bench.wait(5_000)
    assert len(bench.told) == 3
    assert len(bench.topics_of("g")) == 102


def test_a_topic_that_went_is_not_found_any_more() -> None:
    bench = Bench("a1", "a2", g="a.*")
    bench.resolution.look_at("g")
    bench.wait()
    bench.topics.remove("a1")
    bench.resolution.topics_changed(["g"])
    bench.wait(10_000)
    assert bench.topics_of("g") == {"a2"}


def test_all_are_looked_at_again_after_the_interval() -> None:
    bench = Bench("a1", g="a.*")
    bench.resolution.look_at("g")
    bench.wait(INTERVAL_MS - 1)
    assert len(bench.told) == 1
    bench.wait(1)
    assert len(bench.told) == 2


def test_a_coordinator_that_took_over_looks_at_what_another_one_resolved() -> None:
    bench = Bench("a1", "a2", g="a.*")
    bench.groups["g"].resolved["a.*"] = Resolved(frozenset({"a1"}), 0, 0)
    bench.resolution.look_at("g")
    bench.wait()
    assert bench.topics_of("g") == {"a1", "a2"}


def test_what_could_not_be_written_is_not_tried_before_somebody_asks_again() -> None:
    bench = Bench("a1", g="a.*")
    bench.writes = False
    bench.resolution.look_at("g")
    bench.wait(60_000)
    assert len(bench.told) == 1
    bench.resolution.look_at("g")
    bench.wait()
    assert len(bench.told) == 2


def test_an_expression_that_comes_during_a_round_is_resolved_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "STEPS_A_SLICE", 1)
    bench = Bench("a1", "b", g="a.*")
    bench.resolution.look_at("g")
    bench.wait()
    bench.groups["g"].regexes.add("b.*")
    bench.resolution.look_at("g")
    bench.wait(100)
    assert bench.topics_of("g") == {"a1", "b"}


def test_an_expression_that_nobody_needs_when_the_round_ends_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "STEPS_A_SLICE", 1)
    bench = Bench("a1", g="a.*")
    bench.resolution.look_at("g")
    bench.wait()
    bench.groups["g"].regexes = {"b.*"}
    bench.wait(100)
    assert bench.told == [("g", {"b.*"})]


def test_a_group_that_subscribes_with_no_expression_any_more_is_forgotten() -> None:
    bench = Bench("a1", g="a.*")
    bench.resolution.look_at("g")
    bench.wait()
    bench.groups["g"].regexes.clear()
    bench.resolution.look_at("g")
    bench.wait()
    assert not bench.reminders


def test_a_group_that_is_gone_in_the_middle_of_a_round_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "STEPS_A_SLICE", 1)
    bench = Bench("a1", g="a.*", h="a.*")
    for each in ("g", "h"):
        bench.resolution.look_at(each)
    bench.wait()
    del bench.groups["g"]
    bench.wait(INTERVAL_MS)
    assert {group for group, _ in bench.told} == {"h"}
    bench.wait(INTERVAL_MS + 100)
    assert bench.reminders == 1


def test_many_groups_and_topics_are_done_in_slices_between_which_others_have_their_turn() -> None:
    bench = Bench(*(f"topic-{each}" for each in range(2_000)), **{f"g{each}": "topic-1.*" for each in range(10)})
    for each in bench.groups:
        bench.resolution.look_at(each)
    assert bench.wait() <= 1
    bench.wait(1_000)
    assert len(bench.told) == 10
    assert bench.clock_ms - 1_000_000 <= 1_000


def test_names_are_listed_when_the_turn_of_a_group_comes() -> None:
    """Not for thousands of groups at once."""
    bench = Bench(*(f"topic-{each}" for each in range(5_000)), g="a", h="last")
    for each in bench.groups:
        bench.resolution.look_at(each)
    bench.wait()
    bench.topics = ["last"]
    bench.wait(1_000)
    assert bench.topics_of("h") == {"last"}


def test_a_group_with_slow_expressions_keeps_no_other_waiting() -> None:
    slow = "|".join(f"topic-.*{each}.*x" for each in range(300))
    bench = Bench(*(f"topic-{each}" for each in range(5_000)), g=slow, h="topic-1")
    bench.resolution.look_at("g")
    bench.wait()
    bench.resolution.look_at("h")
    bench.wait(150)
    assert bench.topics_of("h") == {"topic-1"}
    assert not bench.topics_of("g")


def test_a_storm_of_topics_moves_no_timer_but_once_a_round() -> None:
    bench = Bench("a1", g="a.*")
    bench.resolution.look_at("g")
    bench.wait()
    for each in range(100):
        bench.create(f"a-{each}")
        bench.wait(10)
    assert bench.reminded <= 4
    bench.wait(10_000)
    assert len(bench.topics_of("g")) == 101
    bench.create("a-late")
    bench.wait(10_000)
    assert len(bench.topics_of("g")) == 102
