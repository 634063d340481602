"""Ports that cannot be had: which setting to change."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.runtime.settings.definitions import SettingError
from ottla.runtime.settings.endpoints import Listener

_REASONS = {
    errno.EADDRINUSE: "another process listens there: end it, or give this listener another port",
    errno.EADDRNOTAVAIL: "this machine has no such address: write one of its own, or an empty host for all",
    errno.EACCES: "ports below 1024 are not for this user: give this listener a higher one",
}


@contextmanager
def naming(listener: Listener) -> Iterator[None]:
    """Turns the OSError of a failed bind into a SettingError that names the listener."""
    with naming_setting(f"listeners={listener.name}://{listener.endpoint}"):
        yield


@contextmanager
def naming_setting(setting: str) -> Iterator[None]:
    """The same for an address that is a setting of its own: ``name=value``."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise SettingError(f"{setting}: {reason}") from error
