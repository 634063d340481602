"""The end of what has many parts."""

import logging
from collections.abc import Awaitable, Callable, Iterable

from ottla.runtime.errors import KafkaError

logger = logging.getLogger(__name__)

Part = Callable[[], Awaitable[None] | None]


async def end_each(parts: Iterable[Part]) -> None:
    """Ends one after the other, each also where one before it failed. Raises the first error when all are through."""
    first: Exception | None = None
    for part in parts:
        try:
            ending = part()
            if ending is not None:
                await ending
        except Exception as error:
            surprise = None if isinstance(error, KafkaError | OSError) else error
            logger.error("A part of a stop failed, and the others go on: %s", error, exc_info=surprise)
            first = first or error
    if first is not None:
        raise first
