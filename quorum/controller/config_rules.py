"""Which dynamic settings the controller lets into the log: those that every node can read and whose values can be."""

from collections.abc import Mapping

from ottla.quorum.metadata.views import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.definitions import Setting, SettingError, Value, server_settings, topic_settings
from ottla.runtime.settings.topic import check_topic_setting

GROUP_SETTINGS = ("consumer.assignment.interval.ms", "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms")
"""That a coordinator goes by. Those of kinds of groups that there are none of change nothing."""
_NO_SUCH_GROUPS = ("share.", "streams.")


class SettingRules:
    """`ConfigRules` over the tables of settings."""

    def check(self, resource_type: int, resource_name: str, values: Mapping[str, str]) -> None:
        """Raises KafkaError (INVALID_CONFIG) with the setting, its value and what is allowed."""
        try:
            for name, value in values.items():
                if resource_type == TOPIC_RESOURCE:
                    _check_kept(name, check_topic_setting(name, value))
                elif resource_type == BROKER_RESOURCE:
                    _broker_setting(name).parse(value)
                elif resource_type == GROUP_RESOURCE:
                    _check_group_setting(name, value)
        except SettingError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def list_default(self, resource_type: int, name: str) -> tuple[str, ...] | None:
        """The default of a setting that is a list; None when it is not one."""
        table = topic_settings() if resource_type == TOPIC_RESOURCE else server_settings()
        setting = table.get(name)
        if setting is None or setting.type != "LIST":
            return None
        return tuple(word for word in setting.default.split(",") if word)


def _check_kept(name: str, value: Value) -> None:
    """Refuses what the controller does not let in any more. It is not among what a node reads: a topic that was given it by
    an earlier version must not stop one."""
    if name == "remote.storage.enable" and value:
        raise SettingError(f"{name}=true: there is no tiered storage, all segments stay here; write false")


def _check_group_setting(name: str, text: str) -> None:
    if name in GROUP_SETTINGS:
        server_settings()[f"group.{name}"].parse(text)
    elif not name.startswith(_NO_SUCH_GROUPS):
        raise SettingError(f"unknown group setting {name}: there are {', '.join(GROUP_SETTINGS)}")


def _broker_setting(name: str) -> Setting:
    setting = server_settings().get(name)
    if setting is None:
        raise SettingError(f"unknown broker setting {name}")
    return setting
