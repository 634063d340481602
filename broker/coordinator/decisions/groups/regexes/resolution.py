"""When the regular expressions of a group are matched with the topics there are, and matched again.

* One that is new: at once, and only it.
* All of a group: when topics came or went, but once in ten seconds at most; after its interval; and by a coordinator that took over.

What is to be matched waits in one queue, of which a slice is done at a time. What a round of a group found is told when it is
complete: who is told writes it.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ottla.broker.coordinator.decisions.effects import Effects
from ottla.broker.coordinator.decisions.groups.regexes.matching import STEPS_A_SLICE, Matching

ROUND_PAUSE_MS = 10_000
"""Between two rounds over all expressions of a group (Kafka's)."""
SLICE_PAUSE_MS = 5
SLICES_IN_A_ROW = 20
"""Of one group's round, while others wait."""
COMPILING_STEPS = 100_000
"""What it costs to begin with an expression, as steps of the machine that matches."""
_SLICE = "regexes"


class Resolved(NamedTuple):
    """What an expression means, as its record says it."""

    topics: frozenset[str]
    version: int
    """Of the metadata: the offset of the last record that it saw."""
    time_ms: int
    """Of day."""


class RegexGroup(Protocol):
    """What of a group counts here."""

    @property
    def regexes(self) -> Collection[str]:
        """That its members subscribe to."""
        ...

    @property
    def resolved(self) -> Mapping[str, Resolved]:
        """By expression; also of those that nobody needs any more."""
        ...


class TopicNames(Protocol):
    """The topics there are."""

    def names(self) -> list[str]:
        """A new list."""
        ...

    @property
    def version(self) -> int: ...


Found = Mapping[str, Resolved]
Find = Callable[[str], RegexGroup | None]


class Resolution:
    """For all groups of a shard."""

    def __init__(
        self, effects: Effects, topics: TopicNames, interval_ms: int, find: Find, told: Callable[[str, Found], None]
    ) -> None:
        """``interval_ms``: `group.consumer.regex.refresh.interval.ms`. ``told``: what a round found in a group that still is there,
        of expressions that its members still subscribe to."""
        self._effects = effects
        self._topics = topics
        self._interval_ms = interval_ms
        self._find = find
        self._told = told
        self._rounds: dict[str, _Round] = {}
        """By group, the next first."""
        self._may_from_ms: dict[str, int] = {}
        """When the next round over all expressions of a group may begin."""
        self._asked = set[str]()
        """Groups whose next round begins as soon as it may: a storm of topics moves their timers once."""

    def look_at(self, group_id: str) -> None:
        """Its subscriptions may have changed, or it is new here. Costs nothing where all is resolved."""
        group = self._find(group_id)
        if group is None or not group.regexes:
            self.forget(group_id)
        elif group_id not in self._may_from_ms:
            self._begin_all(group_id)
        else:
            self._look_for_new(group_id, group, ())

    def topics_changed(self, group_ids: Iterable[str]) -> None:
        """Topics came or went."""
        for group_id in group_ids:
            if group_id in self._asked:
                continue
            if group_id in self._may_from_ms:
                self._asked.add(group_id)
                wait_ms = self._may_from_ms[group_id] - self._effects.clock_ms
                self._effects.remind(_next(group_id), wait_ms, partial(self._begin_all, group_id))
            else:
                self.look_at(group_id)

    def forget(self, group_id: str) -> None:
        """Nobody of it subscribes with an expression."""
        if self._rounds.pop(group_id, None) is not None and not self._rounds:
            self._effects.forget(_SLICE)
        self._asked.discard(group_id)
        if self._may_from_ms.pop(group_id, None) is not None:
            self._effects.forget(_next(group_id))

    def end(self, count_a_turn: int) -> Iterator[None]:
        """All of them are another coordinator's now."""
        for count, group_id in enumerate([*self._may_from_ms, *self._rounds], 1):
            self.forget(group_id)
            if not count % count_a_turn:
                yield

    # --- rounds -------------------------------------------------------------------------------------------------------

    def _begin_all(self, group_id: str) -> None:
        self._asked.discard(group_id)
        group = self._find(group_id)
        if group is None or not group.regexes:
            self.forget(group_id)
            return
        self._begin(group_id, group.regexes)
        self._may_from_ms[group_id] = self._effects.clock_ms + ROUND_PAUSE_MS
        self._effects.remind(_next(group_id), self._interval_ms, partial(self._begin_all, group_id))

    def _look_for_new(self, group_id: str, group: RegexGroup, tried: Collection[str]) -> None:
        new = [each for each in group.regexes if each not in group.resolved and each not in tried]
        if new and group_id not in self._rounds:
            self._begin(group_id, new)

    def _begin(self, group_id: str, regexes: Iterable[str]) -> None:
        """A round over some of them that is going on is given up for one over all."""
        is_idle = not self._rounds
        self._rounds.pop(group_id, None)  # it begins at the end of the queue
        self._rounds[group_id] = _Round(sorted(regexes), self._topics)
        if is_idle:
            self._effects.remind(_SLICE, 0, self._go_on)

    def _go_on(self) -> None:
        """One slice, of as many rounds as there is time for."""
        steps = STEPS_A_SLICE
        while self._rounds:
            group_id, going = next(iter(self._rounds.items()))
            steps = going.go_on(steps)
            if not steps:
                self._let_others(group_id, going)
                self._effects.remind(_SLICE, SLICE_PAUSE_MS, self._go_on)
                return
            del self._rounds[group_id]
            self._end(group_id, going)

    def _let_others(self, group_id: str, going: "_Round") -> None:
        """One whose expressions are slow goes to the end of the queue. Most are over before: then the names that it goes through are
        kept of one group at a time."""
        going.slices += 1
        if not going.slices % SLICES_IN_A_ROW:
            self._rounds[group_id] = self._rounds.pop(group_id)

    def _end(self, group_id: str, ended: "_Round") -> None:
        """What could not be written is not tried again before somebody asks: it might never be."""
        group = self._find(group_id)
        if group is None:
            return
        found = {regex: each for regex, each in ended.found(self._effects.time_ms).items() if regex in group.regexes}
        if found:
            self._told(group_id, found)
        self._look_for_new(group_id, group, ended.regexes)


class _Round:
    """Some expressions of a group, with the topics that there are when its turn comes."""

    def __init__(self, regexes: Sequence[str], topics: TopicNames) -> None:
        self.regexes = regexes
        self._topics = topics
        self._version, self._names = -1, list[str]()
        self._matchings: list[Matching] = []
        self.slices = 0
        """That have passed without an end."""

    def go_on(self, steps: int) -> int:
        """What is left of the steps; 0 when there is more to do."""
        while not self._is_over:
            if steps <= 0:
                return 0
            if not self._matchings:
                self._version, self._names = self._topics.version, self._topics.names()
            if not self._matchings or self._matchings[-1].is_over:
                self._matchings.append(Matching(self.regexes[len(self._matchings)], self._names))
                steps -= COMPILING_STEPS
            steps = self._matchings[-1].go_on(steps)
        return max(steps, 1)

    @property
    def _is_over(self) -> bool:
        return len(self._matchings) == len(self.regexes) and all(each.is_over for each in self._matchings[-1:])

    def found(self, now_ms: int) -> dict[str, Resolved]:
        return {each.regex: Resolved(each.found, self._version, now_ms) for each in self._matchings}


def _next(group_id: str) -> Hashable:
    return "regexes", group_id
