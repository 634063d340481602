"""Subscriptions by regular expression of a shard's consumer groups: what their rounds find is written, and asks for another target."""

from collections.abc import Iterator
from functools import partial

from ottla.broker.coordinator.decisions.effects import Effects
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.member import ConsumerMember
from ottla.broker.coordinator.decisions.groups.consumer.records import epoch_record, regex_record, regex_tombstone
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics, metadata_hash
from ottla.broker.coordinator.decisions.groups.regexes.resolution import Found, Resolution, Resolved
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.runtime.errors import ErrorCode, KafkaError

GROUPS_A_TURN = 1_000
"""So many are looked at at once when a shard begins, or forgotten when it ends."""

REGEXES_MAX = 100
"""Different ones of a group: each of them may match all topics there are."""

NAMES_A_TURN = 1_000
"""Of topics that a group reads: so many are gone through for what is written in one turn, a millisecond or two. For each expression it is all of them."""


def check_regexes(group: ConsumerGroup | None, member: ConsumerMember) -> None:
    """Raises KafkaError (INVALID_REGULAR_EXPRESSION) for one too many."""
    if group is not None and member.regex and member.regex not in group.regexes and len(group.regexes) >= REGEXES_MAX:
        message = f"The members of the group have {len(group.regexes)} regular expressions, and more are too many."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


class Patterns:
    """Begins with `begin`, and ends with its shard."""

    def __init__(self, effects: Effects, settings: GroupSettings, topics: GroupTopics, groups: ConsumerGroups) -> None:
        self._effects = effects
        self._topics = topics
        self._groups = groups
        self._resolution = Resolution(effects, topics, settings.regex_refresh_interval_ms, groups.find, self._found)
        self._left: dict[str, dict[str, Resolved]] = {}
        """What was found, by group and expression, and is written in turns to come."""

    def begin(self) -> Iterator[None]:
        """All is replayed: topics may have come and gone while nobody looked."""
        for count, group in enumerate(list(self._groups), 1):
            self.look_at(group)
            if not count % GROUPS_A_TURN:
                yield

    def look_at(self, group: ConsumerGroup) -> None:
        """Who subscribes, or to what, may have changed."""
        if group.regexes or group.resolved:
            self._resolution.look_at(group.id)
            self._forget_needless(group)  # perhaps there is nothing to match, and so no round soon

    def topics_changed(self) -> None:
        """Topics came or went."""
        self._resolution.topics_changed([group.id for group in self._groups if group.regexes])

    def end(self) -> Iterator[None]:
        yield from self._resolution.end(GROUPS_A_TURN)

    def _found(self, group_id: str, found: Found) -> None:
        """Only what differs from before is written, each expression by itself: one whose topics no record can hold keeps no other out."""
        left = self._left.get(group_id)
        if left is not None:
            left.update(found)  # of an expression what was found last
            return
        self._left[group_id] = dict(found)
        self._write_some(group_id)

    def _write_some(self, group_id: str) -> None:
        """The rest in a later turn."""
        group, left = self._groups.find(group_id), self._left[group_id]
        if group is None or not self._write_of(group, left):
            del self._left[group_id]
        else:
            self._effects.soon(partial(self._write_some, group_id))

    def _write_of(self, group: ConsumerGroup, left: dict[str, Resolved]) -> bool:
        """Whether there may be more to write."""
        self._forget_needless(group)
        names = 0
        while left and names < NAMES_A_TURN:
            regex = next(iter(left))
            now, before = left.pop(regex), group.resolved.get(regex)
            if regex in group.regexes and (before is None or before.topics != now.topics):
                self._write(group, regex, now)
                names += len(group.readers)
        return bool(left)

    def _forget_needless(self, group: ConsumerGroup) -> None:
        """Their topics count as read as long as they are there."""
        needless = [regex for regex in group.resolved if regex not in group.regexes]
        if needless:
            self._effects.write([regex_tombstone(group.id, each) for each in needless], _pass)

    def _write(self, group: ConsumerGroup, regex: str, now: Resolved) -> None:
        """Together with an epoch, if it is about topics: without one its members would never be given them. What no record can hold is found
        again with the next round."""
        before = group.resolved[regex].topics if regex in group.resolved else frozenset()
        records = [regex_record(group.id, regex, now)]
        if before != now.topics:
            readers = group.readers.copy()
            readers.subtract(before)
            readers.update(now.topics)
            names = [topic for topic, count in readers.items() if count > 0]
            records.append(epoch_record(group.id, group.epoch + 1, metadata_hash(names, self._topics)))
        self._effects.write(records, partial(self._written, group.id))

    def _written(self, group_id: str, error: ErrorCode) -> None:
        """What cannot be written now is looked for again soon, as if topics had come: nothing else would do that before the interval is over."""
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            self._resolution.topics_changed([group_id])


def _pass(error: ErrorCode) -> None:
    """Nobody waits for it."""
