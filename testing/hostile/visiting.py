"""A hostile client's connection, and ears for what the node says of it."""

import asyncio
import logging

from ottla.testing.hostile.expected import Asked, WrongAnswer, check, frames_in, responses_in

CLOSED = "Closed the connection"


class Ears(logging.Handler):
    """Hears what the node logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.closings = 0
        self.mistakes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.closings += record.getMessage().startswith(CLOSED)
        if record.levelno >= logging.ERROR or record.exc_info:
            self.mistakes.append(logging.Formatter().format(record))


class Visit:
    """What was sent over one connection, and what came back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._received = b""
        self._asked: list[Asked] = []
        self.closed = False
        self._whole = True

    def send(self, data: bytes) -> None:
        self._asked, self._received = frames_in(data), b""
        self._whole = len(self._asked) == 1 and int.from_bytes(data[:4], "big") == len(data) - 4
        self._writer.write(data)

    async def look(self, seconds: float) -> list[Asked]:
        """What is not answered after a while. Raises WrongAnswer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            answers, rest = responses_in(self._received)
            left = check(self._asked, answers)
            if self.closed or (loop.time() >= deadline or not (left or rest or not self._asked)):
                if rest:
                    raise WrongAnswer(f"half a response: {rest[:100].hex()}")
                return left
            await self._receive(max(0.001, deadline - loop.time()))

    async def _receive(self, seconds: float) -> None:
        try:
            data = await asyncio.wait_for(self._reader.read(1 << 20), seconds)
        except TimeoutError:
            return
        except OSError:
            data = b""
        self.closed = not data
        self._received += data

    @property
    def answered(self) -> bool:
        """Whether something more may be sent over it: all that was sent were whole requests."""
        return bool(self._asked) and self._whole

    def end(self) -> None:
        self._writer.close()
