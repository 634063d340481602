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
        group = self._groups.find(group_id)
        if group is None:
            return
        self._forget_needless(group)
        for regex, each in found.items():
            before = group.resolved.get(regex)
            if before is None or before.topics != each.topics:
                self._write(group, regex, each)

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
