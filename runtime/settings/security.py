"""Settings that promise what is not there yet: encryption, authentication, access rules, limits against strangers.

A node that was given one of them does not start. To take it and serve everybody in plaintext would be worse than any stop.
What has its default value, or none, promises nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.runtime.settings.definitions import SettingError, server_settings

PLAINTEXT = "PLAINTEXT"
PROTOCOL_MAP = "listener.security.protocol.map"
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"

_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MISSING = {
    "SSL": "there is no TLS yet",
    "SASL_PLAINTEXT": "there is no SASL yet",
    "SASL_SSL": "there is no TLS and no SASL yet",
}
_OF_LISTENER = "listener.name."

_TLS = "there is no TLS yet"
_SASL = "there is no SASL yet"
_NO_RULES = "there are no access rules yet, everybody may do everything"
_NO_NAMES = "nobody is asked who he is yet"
_NO_CLASSES = "what this Java class forbids would be allowed here"

_PREFIXES = {
    "ssl.": _TLS,
    "sasl.": _SASL,
    "delegation.token.": "there are no delegation tokens yet",
    "password.encoder.": "nothing would be encoded with it",
}
_NAMES = {
    "authorizer.class.name": _NO_RULES,
    "super.users": _NO_RULES,
    "allow.everyone.if.no.acl.found": _NO_RULES,
    "principal.builder.class": _NO_NAMES,
    "connections.max.reauth.ms": _NO_NAMES,
    "connection.failed.authentication.delay.ms": _NO_NAMES,
    "security.providers": _TLS,
    "create.topic.policy.class.name": _NO_CLASSES,
    "alter.config.policy.class.name": _NO_CLASSES,
    "client.quota.callback.class": "there are no quotas yet",
    "max.connection.creation.rate": "the rate of new connections is not limited here",
}


def missing_promise(name: str) -> str | None:
    """What is missing for a setting that promises safety, a listener's own (``listener.name.x.``) too; None for any other."""
    if name.startswith(_OF_LISTENER):
        name = name[len(_OF_LISTENER) :].partition(".")[2]
        if ".sasl." in name:  # scram-sha-512.sasl.jaas.config: a mechanism's
            return _SASL
        if name == "max.connections":
            return "listeners have no limit of their own here, only the node has"
    return _NAMES.get(name) or next((missing for prefix, missing in _PREFIXES.items() if name.startswith(prefix)), None)


def broken_promises(texts: Mapping[str, str]) -> list[str]:
    """One line for each setting that this node could not keep, with what to do about it."""
    lines = []
    for name, text in texts.items():
        missing = missing_promise(name)
        if missing is not None and _asks_for_something(name, text):
            lines.append(f"{_shown(name, text)}: {missing}; remove it")
    return lines + _insecure_listeners(texts)


def _asks_for_something(name: str, text: str) -> bool:
    setting = server_settings().get(name)
    if setting is None:
        return bool(text)
    try:
        return bool(text) and setting.parse(text) != setting.default_value
    except SettingError:
        return True


def _shown(name: str, text: str) -> str:
    """Without the value where it is a password, or may be."""
    setting = server_settings().get(name)
    return name if setting is None or setting.type == "PASSWORD" else f"{name}={text}"


# Listeners.


def protocol_of(listener: str, protocol_map: str) -> str:
    """A listener's security protocol, by the value of `PROTOCOL_MAP`; one that is not in it has the protocol's own name."""
    return _protocols({PROTOCOL_MAP: protocol_map})[0].get(listener, listener if listener in _PROTOCOLS else PLAINTEXT)


class _Use(NamedTuple):
    """A listener's name where it stands: the setting, and the entry in it."""

    listener: str
    setting: str
    entry: str


def _insecure_listeners(texts: Mapping[str, str]) -> list[str]:
    protocols, lines = _protocols(texts)
    has_map = PROTOCOL_MAP in texts
    for use in _uses(texts):
        own = use.listener if use.listener in _PROTOCOLS else None
        protocol = protocols.get(use.listener, own)
        if protocol is None and has_map:
            lines.append(f"{use.setting}={use.entry}: not in {PROTOCOL_MAP}; add {use.listener}:{PLAINTEXT} to that")
        elif protocol in _MISSING:
            where = f"{PROTOCOL_MAP} says {use.listener}:{protocol}" if use.listener in protocols else protocol
            lines.append(f"{use.setting}={use.entry}: {_MISSING[protocol]} ({where}); {_instead(use, own)}")
    protocol = texts.get(INTER_BROKER_PROTOCOL, PLAINTEXT).upper()
    if protocol != PLAINTEXT:
        missing = _MISSING.get(protocol, f"there is no protocol {protocol}")
        lines.append(f"{INTER_BROKER_PROTOCOL}={protocol}: {missing}; remove it")
    return lines


def _instead(use: _Use, own: str | None) -> str:
    if own is None:
        return f"write {use.listener}:{PLAINTEXT} there, if strangers cannot reach it"
    return f"write {PLAINTEXT}{use.entry[len(use.listener) :]}, if strangers cannot reach it"


def _protocols(texts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Security protocol by listener name, as the map says; and what is wrong with the map."""
    protocols, lines = {}, []
    for entry in _entries(texts, PROTOCOL_MAP):
        listener, _, protocol = (part.strip().upper() for part in entry.partition(":"))
        if protocol in _PROTOCOLS:
            protocols[listener] = protocol
        else:
            lines.append(f"{PROTOCOL_MAP}: {entry!r} is not NAME:PROTOCOL; protocols are {', '.join(_PROTOCOLS)}")
    return protocols, lines


def _uses(texts: Mapping[str, str]) -> list[_Use]:
    return [
        _Use(entry.partition("://")[0].strip().upper(), setting, entry)
        for setting in ("listeners", "advertised.listeners", "controller.listener.names", "inter.broker.listener.name")
        for entry in _entries(texts, setting)
    ]


def _entries(texts: Mapping[str, str], name: str) -> list[str]:
    return [entry.strip() for entry in texts.get(name, "").split(",") if entry.strip()]
