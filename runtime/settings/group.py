"""The settings of one group: what they may be, and what they are where it sets none (Kafka's GroupConfig).

A broker setting is the default of each, ``group.consumer.min.*`` and ``.max.*`` are its bounds.
"""

from collections.abc import Mapping

from ottla.runtime.settings.definitions import Setting, SettingError, Value, group_settings, server_settings
from ottla.runtime.settings.server import ServerConfig

_SESSION, _HEARTBEAT = "session.timeout.ms", "heartbeat.interval.ms"
_KINDS = ("consumer", "share", "streams")


def check_group_settings(texts: Mapping[str, str], server: ServerConfig) -> None:
    """All that a group is to have. Raises SettingError with the first that cannot be."""
    values = _defaults(server)
    for name, text in texts.items():
        setting = group_settings().get(name)
        if setting is None:
            raise SettingError(f"unknown group setting {name}")
        values[name] = setting.parse(text)
    for name in texts:
        _check_bounds(group_settings()[name], values[name], server)
    for session, heartbeat in _pairs():
        if (session in texts or heartbeat in texts) and _is_too_short(values, session, heartbeat):
            raise SettingError(f"{session}={values[session]}: write more than {heartbeat}={values[heartbeat]}")


def _defaults(server: ServerConfig) -> dict[str, Value]:
    """Of a group that sets nothing."""
    return {
        name: server.get(setting.broker_name) if setting.broker_name else setting.default_value
        for name, setting in group_settings().items()
    }


def _pairs() -> list[tuple[str, str]]:
    return [(f"{kind}.{_SESSION}", f"{kind}.{_HEARTBEAT}") for kind in _KINDS]


def _is_too_short(values: Mapping[str, Value], session: str, heartbeat: str) -> bool:
    session_ms, heartbeat_ms = values[session], values[heartbeat]
    return isinstance(session_ms, int) and isinstance(heartbeat_ms, int) and session_ms <= heartbeat_ms


# --- bounds -----------------------------------------------------------------------------------------------------------


def _bound(setting: Setting, which: str) -> str | None:
    """The broker setting that is the group setting's ``min`` or ``max``; None where there is none."""
    kind, _, what = setting.name.partition(".")
    name = f"group.{kind}.{which}.{what.removeprefix('num.')}"
    return name if setting.broker_name and name in server_settings() else None


def _check_bounds(setting: Setting, value: Value, server: ServerConfig) -> None:
    least, most = _bound(setting, "min"), _bound(setting, "max")
    if least is not None and isinstance(value, int) and value < server.integer(least):
        raise SettingError(f"{setting.name}={value}: the least allowed is {least}={server.integer(least)}")
    if most is not None and isinstance(value, int) and value > server.integer(most):
        raise SettingError(f"{setting.name}={value}: the most allowed is {most}={server.integer(most)}")
