"""The error codes that a response carries, wherever in it they stand. Not for Produce and Fetch, which are no messages."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec

ERROR_CODE = "error_code"

Collect = Callable[[Any, list[int]], None]


def errors_in(message: msgspec.Struct) -> list[int]:
    """All that are not 0. Costs a look at each part that may carry one."""
    found: list[int] = []
    _collector(type(message))(message, found)
    return found


@cache
def _collector(kind: type[msgspec.Struct]) -> Collect:
    """Adds those of a message of that class to a list."""
    carries, names = _shape(kind)

    def collect(message: Any, found: list[int]) -> None:
        if carries and (code := message.error_code):
            found.append(code)
        for name in names:
            value: list[msgspec.Struct | None] | msgspec.Struct | None = getattr(message, name)
            for part in value if isinstance(value, list) else (value,):
                if part is not None:
                    _collector(type(part))(part, found)

    return collect


@cache
def _shape(kind: type[msgspec.Struct]) -> tuple[bool, tuple[str, ...]]:
    """Whether the class has an error code, and its fields in which there may be more."""
    hints = get_type_hints(kind)
    return ERROR_CODE in hints, tuple(name for name, hint in hints.items() if any(map(_may_carry, _structs(hint))))


def _may_carry(kind: type[msgspec.Struct]) -> bool:
    carries, parts = _shape(kind)
    return carries or bool(parts)


def _structs(hint: object) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for inner in get_args(hint):
        yield from _structs(inner)
