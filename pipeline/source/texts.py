"""How the text of an option is read. Each raises OptionError, which names the option."""

import json
from typing import Any

from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.wire.metadata import TopicPartition

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_TIMES = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {name}={text} must be true or false")
    return text.lower() == "true"


def count(name: str, text: str) -> int:
    """A whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise OptionError(f"option {name}={text} must be a whole number of at least 1")
    return int(text)


def milliseconds(name: str, text: str) -> int:
    """Since 1970."""
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"option {name}={text} must be a time in milliseconds since 1970")
    return int(text)


def size(name: str, text: str) -> int:
    """Bytes, or with a unit: 64m."""
    number, unit = _with_unit(text)
    if unit not in _UNITS or number < 1:
        raise OptionError(f"option {name}={text} must be a number of bytes, as 1000000 or 64m")
    return number * _UNITS[unit]


def duration_ms(name: str, text: str) -> int:
    """As Spark writes it: 15m, 30s; a number alone is in milliseconds."""
    number, unit = _with_unit(text)
    if unit not in _TIMES or number < 0:
        raise OptionError(f"option {name}={text} must be a time, as 30s or 15m")
    return number * _TIMES[unit]


def names(text: str) -> tuple[str, ...]:
    """What stands between commas, each once, in its order."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def partition_lists(name: str, text: str) -> dict[str, tuple[int, ...]]:
    """``{"topic": [0, 1]}``."""
    example = f'option {name} must be JSON as {{"topic":[0,1]}}'
    found = _object(example, text)
    for topic, partitions in found.items():
        if not topic or not isinstance(partitions, list) or not partitions or not all(map(_is_count, partitions)):
            raise OptionError(f"{example}, not {text}")
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in found.items()}


def partition_numbers(name: str, text: str, least: int = 0) -> dict[TopicPartition, int]:
    """``{"topic": {"0": 23}}``."""
    example = f'option {name} must be JSON as {{"topic":{{"0":23}}}}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _object(example, text).items():
        if not isinstance(numbers, dict):
            raise OptionError(f"{example}, not {text}")
        for partition, number in numbers.items():
            if not partition.isdecimal() or not isinstance(number, int) or isinstance(number, bool) or number < least:
                raise OptionError(f"{example}, not {text}")
            found[topic, int(partition)] = number
    return found


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _object(example: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{example}, not {text}")
    return found


def _with_unit(text: str) -> tuple[int, str]:
    digits = text.strip().lower()
    unit = digits.lstrip("0123456789")
    number = digits[: len(digits) - len(unit)]
    return (int(number) if number else -1), unit.strip()
