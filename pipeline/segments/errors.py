"""What reading a node's files raises. Errors cross from executors to the driver, so they pickle whole."""


class SegmentsError(Exception):
    """Directories that cannot be read as asked: one line that says what to do."""


class CorruptSegmentError(SegmentsError):
    """A file that does not hold what it should; ``position`` is where in it, ``offset`` which records are concerned."""

    def __init__(self, path: str, position: int, offset: int, message: str) -> None:
        super().__init__(path, position, offset, message)
        self.path = path
        self.position = position
        self.offset = offset
        self.message = message

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}, offset {self.offset}: {self.message}"
