"""What bytes that are no sound records raise. Errors cross from executors to the driver, so they pickle whole."""


class CorruptRecordsError(Exception):
    """Bytes that are not what a batch says of them; ``offset`` is the batch's base offset, ``position`` where it begins in the bytes."""

    def __init__(
        self, message: str, topic: str = "", partition: int = -1, offset: int = -1, position: int = -1
    ) -> None:
        super().__init__(message, topic, partition, offset, position)
        self.message = message
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.position = position

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}: " if self.topic else ""
        return f"{place}batch at offset {self.offset} (byte {self.position}): {self.message}"


class BadBlockError(Exception):
    """A compressed block that cannot be opened, or not within its bounds."""
