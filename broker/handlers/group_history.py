"""What only this coordinator knows of a group: its last rebalances, and how fast it commits.

Told to whoever asks for these settings of the group by name (DescribeConfigs, resource type GROUP): clients of Kafka never do,
and brokers that do not have them answer without. Each entry is JSON of at most 32 KB, all of one key have its name.
"""

from collections.abc import Collection, Iterator

import msgspec

from ottla.broker.context import BrokerContext
from ottla.broker.coordinator.decisions.groups.shard import GroupShard
from ottla.broker.handlers.config_entries import GROUP, ConfigEntry

REBALANCES = "ottla.group.rebalances"
"""The first entry says what the group waits for now."""
COMMITS = "ottla.group.commits"
"""The first entry says what time it is. The others: topic, partition, offset and time of the last commit, offset and time of an
earlier one."""
_COMMITS_AN_ENTRY = 50
_STRING = 2


def history_entries(broker: BrokerContext, group_id: str, keys: Collection[str]) -> list[ConfigEntry]:
    """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
    if REBALANCES not in keys and COMMITS not in keys:
        return []
    shard = broker.groups.shard_of(group_id)
    entries = []
    if REBALANCES in keys:
        entries += [_entry(REBALANCES, each) for each in shard.history(group_id)]
    if COMMITS in keys:
        commits = list(_commits(shard, group_id))
        pieces = [commits[at : at + _COMMITS_AN_ENTRY] for at in range(0, len(commits), _COMMITS_AN_ENTRY)]
        now = {"now_ms": broker.host.clock.wall_ms()}
        entries += [_entry(COMMITS, msgspec.json.encode(each)) for each in (now, *pieces)]
    return entries


def _commits(shard: GroupShard, group_id: str) -> Iterator[tuple[str, int, int, int, int, int]]:
    for place, committed in shard.offsets.of_group(group_id):
        since = shard.rates.since(group_id, place)
        if since is not None:
            yield (*place, committed.offset, committed.commit_time_ms, *since)


def _entry(name: str, value: bytes) -> ConfigEntry:
    return ConfigEntry(name, value.decode(), True, GROUP, False, (), _STRING)
