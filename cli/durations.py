"""Spans of time as people write and read them."""

import re

import click

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))
_ISO = re.compile(r"(-)?P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_PLAIN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|w)")
_FACTORS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_MS_MAX = 1 << 62


def words(seconds: float) -> str:
    """`0.3 s`, `42 s`, `12 min`, `5.2 h`, `3.1 d`."""
    if not seconds:
        return "0 s"
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            value = seconds / size
            return f"{value:.0f} {unit}" if unit == "min" else f"{value:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def milliseconds(text: str, option: str) -> int:
    """Of `PT1H30M`, as Kafka's tools take it, or of `90m`, `2 h`, `1d`. Raises UsageError."""
    iso = _ISO.fullmatch(text.strip())
    if iso is not None and any(iso.groups()[1:]) and not iso.group(1):
        weeks, days, hours, minutes, seconds = (float(each or 0) for each in iso.groups()[1:])
        return _whole(1000 * (((weeks * 7 + days) * 24 + hours) * 3600 + minutes * 60 + seconds), text, option)
    plain = _PLAIN.fullmatch(text.strip().lower())
    if plain is not None:
        return _whole(1000 * float(plain.group(1)) * _FACTORS[plain.group(2)], text, option)
    raise click.UsageError(f"{option} {text!r}: write PT1H30M, or 90m, 2h, 1d")


def _whole(span_ms: float, text: str, option: str) -> int:
    """Raises UsageError for what no request can hold."""
    if span_ms >= _MS_MAX:
        raise click.UsageError(f"{option} {text!r} is too long")
    return int(span_ms)
