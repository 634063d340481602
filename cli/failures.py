"""The faults a person can do something about, and how they are told. Imports nothing that a command which goes well would not need."""


class CommandError(Exception):
    """Something a command cannot do; the message is one line that says what to do next."""


class Refused(CommandError):
    """A broker answered with this error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def refuse(code: int, what: str, message: str | None = None) -> None:
    """Raises CommandError (Refused) when ``code``, as a broker answered, is an error."""
    if code:
        from ottla.runtime.errors import ErrorCode

        detail = f": {message}" if message else ""
        raise Refused(code, f"{what}: {ErrorCode(code).name}{detail}")


def expected() -> tuple[type[Exception], ...]:
    """What any command may meet: the person can do something about it."""
    from ottla.log.directories.checkpoints import CheckpointError
    from ottla.log.directories.roots import LogDirectoryError
    from ottla.runtime.errors import KafkaError
    from ottla.runtime.settings.definitions import SettingError

    return (CommandError, SettingError, CheckpointError, LogDirectoryError, KafkaError, OSError)


def is_expected(error: BaseException) -> bool:
    """Whether it is one of these; what needs no import is looked at first."""
    if isinstance(error, CommandError | OSError):
        return True
    return isinstance(error, expected())


def lines_of(error: BaseException) -> list[str]:
    """The fault, with a line for each setting where several cannot be."""
    from ottla.runtime.settings.definitions import SettingError

    return str(error).splitlines() if isinstance(error, SettingError) else [one_line(error)]


def one_line(error: BaseException) -> str:
    """The fault in one line: Kafka's error by name, an OSError with its file."""
    from ottla.runtime.errors import KafkaError

    if isinstance(error, KafkaError):
        detail = f": {error.message}" if error.message else ""
        return f"{error.code.name}{detail}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())
