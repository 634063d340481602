"""The faults a person can do something about, and how they are told."""

from ottla.log.checkpoints import CheckpointError
from ottla.log.roots import LogDirectoryError
from ottla.runtime.errors import KafkaError
from ottla.runtime.settings.definitions import SettingError


class CommandError(Exception):
    """Something a command cannot do; the message is one line that says what to do next."""


EXPECTED = (CommandError, SettingError, CheckpointError, LogDirectoryError, KafkaError, OSError)


def one_line(error: BaseException) -> str:
    """The fault in one line: Kafka's error by name, an OSError with its file."""
    if isinstance(error, KafkaError):
        detail = f": {error.message}" if error.message else ""
        return f"{error.code.name}{detail}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())
