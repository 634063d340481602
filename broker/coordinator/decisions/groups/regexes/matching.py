"""A regular expression over the names of topics: RE2's syntax, and the whole name has to match, as in Kafka.

Whatever a client sends, it costs little: RE2 takes time in proportion to the expression and the name, and its size is bounded here.
"""

from collections.abc import Sequence
from typing import Any

import re2

from ottla.broker.coordinator.decisions.record_format import fits

PROGRAM_BYTES_MAX = 256 << 10
"""Of a compiled expression, which takes about 2 ms at most. 9,000 instructions, or 2,500 names of topics with `|` between them."""
STEPS_A_SLICE = 4_000_000
"""Of the machine that matches: 1,600 topics with a simple expression, about 3 ms. Everybody's requests wait meanwhile."""
_STEPS_A_NAME = 2_000
"""What a name costs before the machine starts."""


class RegexError(ValueError):
    """It is none, or a too large one."""


def check(regex: str) -> None:
    """Raises RegexError."""
    compiled(regex)


def compiled(regex: str) -> Any:
    """A pattern of `re2`. Raises RegexError."""
    if not fits(regex):
        raise RegexError(f"{len(regex)} characters are too many")
    options = re2.Options()
    options.max_mem, options.never_capture, options.log_errors = PROGRAM_BYTES_MAX, True, False
    try:
        return re2.compile(regex, options=options)
    except re2.error as error:
        raise RegexError(_text(error)) from error


def _text(error: Exception) -> str:
    told = error.args[0] if error.args else ""
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)


class Matching:
    """Finds the names that match, in slices. An expression that an older record has and nobody can read matches nothing."""

    def __init__(self, regex: str, names: Sequence[str]) -> None:
        self.regex = regex
        self._names = names
        self._next = 0
        self._found: list[str] = []
        try:
            self._pattern = compiled(regex)
        except RegexError:
            self._next = len(names)

    def go_on(self, steps: int) -> int:
        """Looks at as many names as so many steps allow. What is left of them; 0 when there is more to do."""
        while not self.is_over:
            if steps <= 0:
                return 0
            name = self._names[self._next]
            self._next += 1
            if self._pattern.fullmatch(name) is not None:
                self._found.append(name)
            steps -= _STEPS_A_NAME + self._pattern.programsize * len(name)
        return max(steps, 1)

    @property
    def is_over(self) -> bool:
        return self._next >= len(self._names)

    @property
    def found(self) -> frozenset[str]:
        return frozenset(self._found)
