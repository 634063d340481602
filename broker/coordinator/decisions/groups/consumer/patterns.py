"""Subscriptions by regular expression of a shard's consumer groups: what their rounds find is written, and asks for another target."""

from collections.abc import Iterator

from ottla.broker.coordinator.decisions.effects import Effects, Record
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroup
from ottla.broker.coordinator.decisions.groups.consumer.groups import ConsumerGroups
from ottla.broker.coordinator.decisions.groups.consumer.records import epoch_record, regex_record, regex_tombstone
from ottla.broker.coordinator.decisions.groups.consumer.topics import GroupTopics, metadata_hash
from ottla.broker.coordinator.decisions.groups.regexes.resolution import Found, Resolution
from ottla.broker.coordinator.decisions.groups.settings import GroupSettings
from ottla.runtime.errors import ErrorCode

GROUPS_A_TURN = 1_000
"""So many are looked at at once when a shard begins, or forgotten when it ends."""


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

    def topics_changed(self) -> None:
        """Topics came or went."""
        self._resolution.topics_changed([group.id for group in self._groups if group.regexes])

    def end(self) -> Iterator[None]:
        yield from self._resolution.end(GROUPS_A_TURN)

    def _found(self, group_id: str, found: Found) -> None:
        """Only what differs from before is written; then another target is due."""
        group = self._groups.find(group_id)
        if group is None:
            return
        changed = {
            regex: each
            for regex, each in found.items()
            if regex not in group.resolved or each.topics != group.resolved[regex].topics
        }
        needless = [regex for regex in group.resolved if regex not in group.regexes]
        records = [regex_record(group_id, regex, each) for regex, each in changed.items()]
        records += [regex_tombstone(group_id, regex) for regex in needless]
        if any(each.topics or regex in group.resolved for regex, each in changed.items()):
            records.append(self._next_epoch(group, changed, needless))
        if records:
            self._write(group, records)

    def _next_epoch(self, group: ConsumerGroup, changed: Found, needless: list[str]) -> Record:
        readers = group.readers.copy()
        for regex in (*changed, *needless):
            readers.subtract(group.resolved[regex].topics if regex in group.resolved else ())
        for each in changed.values():
            readers.update(each.topics)
        names = [topic for topic, count in readers.items() if count > 0]
        return epoch_record(group.id, group.epoch + 1, metadata_hash(names, self._topics))

    def _write(self, group: ConsumerGroup, records: list[Record]) -> None:
        def written(error: ErrorCode) -> None:
            if error:  # found again when a member that needs it is heard from, or with the next round
                group.is_refresh_due = True

        self._effects.write(records, written)
