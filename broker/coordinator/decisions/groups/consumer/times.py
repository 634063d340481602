"""How long things may take in a consumer group: what was set for it alone, within the bounds of its node, else what the node says."""

from collections.abc import Callable, Mapping

from ottla.broker.coordinator.decisions.groups.settings import GroupSettings

OwnSettings = Callable[[str], Mapping[str, str]]
"""Of a group, by Kafka's names; they may change from one request to the next."""


class Times:
    """Of all consumer groups of a shard."""

    def __init__(self, settings: GroupSettings, own: OwnSettings) -> None:
        self._settings = settings
        self._own = own

    def session_ms(self, group_id: str) -> int:
        settings = self._settings
        return self._of(
            group_id,
            "consumer.session.timeout.ms",
            settings.consumer_session_timeout_ms,
            settings.consumer_session_bounds,
        )

    def heartbeat_ms(self, group_id: str) -> int:
        settings = self._settings
        return self._of(
            group_id,
            "consumer.heartbeat.interval.ms",
            settings.consumer_heartbeat_interval_ms,
            settings.consumer_heartbeat_bounds,
        )

    def assignment_ms(self, group_id: str) -> int:
        settings = self._settings
        return self._of(
            group_id,
            "consumer.assignment.interval.ms",
            settings.consumer_assignment_interval_ms,
            settings.consumer_assignment_bounds,
        )

    def _of(self, group_id: str, name: str, general: int, bounds: tuple[int, int]) -> int:
        """What an older node let in and nobody can read counts for nothing."""
        text = self._own(group_id).get(name)
        if text is None:
            return general
        try:
            least, most = bounds
            return min(max(int(text), least), most)
        except ValueError:
            return general
