"""What the codec raises."""

from ottla.runtime.errors import ErrorCode, KafkaError


class WireError(KafkaError):
    """Bytes that are not the message they claim to be, or a message that a version cannot carry."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(code, message)
