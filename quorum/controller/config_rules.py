"""Which dynamic settings the controller lets into the log: those that every node can read and whose values can be."""

from collections.abc import Mapping

from ottla.quorum.metadata.views import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.runtime.errors import ErrorCode, KafkaError
from ottla.runtime.settings.client_metrics import check_client_metrics, client_metrics_settings
from ottla.runtime.settings.definitions import Setting, SettingError, Value, server_settings, topic_settings
from ottla.runtime.settings.group import check_group_settings
from ottla.runtime.settings.server import ServerConfig
from ottla.runtime.settings.topic import check_topic_setting, check_topic_settings

_TABLES = {
    TOPIC_RESOURCE: topic_settings,
    BROKER_RESOURCE: server_settings,
    CLIENT_METRICS_RESOURCE: client_metrics_settings,
}


class SettingRules:
    """`ConfigRules` over the tables of settings. What groups may be given is bounded by the settings of this node."""

    def __init__(self, server: ServerConfig) -> None:
        self._server = server

    def check(self, resource_type: int, resource_name: str, values: Mapping[str, str]) -> None:
        """Raises KafkaError (INVALID_CONFIG) with the setting, its value and what is allowed; INVALID_REQUEST, as in Kafka, for a
        setting that client metrics do not have."""
        try:
            if resource_type == GROUP_RESOURCE:
                check_group_settings(values, self._server)
            elif resource_type == CLIENT_METRICS_RESOURCE:
                check_client_metrics(values)
            elif resource_type == BROKER_RESOURCE:
                parsed = {name: _broker_setting(name).parse(value) for name, value in values.items()}
                _check_connections(self._server.changed(parsed))
            elif resource_type == TOPIC_RESOURCE:
                for name, value in values.items():
                    _check_kept(name, check_topic_setting(name, value))
                check_topic_settings(values, self._server)
        except SettingError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def list_default(self, resource_type: int, name: str) -> tuple[str, ...] | None:
        """The default of a setting that is a list; None when it is not one."""
        table = _TABLES.get(resource_type)
        setting = table().get(name) if table is not None else None
        if setting is None or setting.type != "LIST":
            return None
        return tuple(word for word in setting.default.split(",") if word)


def _check_kept(name: str, value: Value) -> None:
    """Refuses what the controller does not let in any more. It is not among what a node reads: a topic that was given it by
    an earlier version must not stop one."""
    if name == "remote.storage.enable" and value:
        raise SettingError(f"{name}=true: there is no tiered storage, all segments stay here; write false")


def _check_connections(broker: ServerConfig) -> None:
    """As Kafka, which holds a change to what it starts with. Raises SettingError."""
    shut = broker.why_shut()
    if shut is not None:
        raise SettingError(shut)


def _broker_setting(name: str) -> Setting:
    setting = server_settings().get(name)
    if setting is None:
        raise SettingError(f"unknown broker setting {name}")
    return setting
