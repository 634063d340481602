"""Options that belong together, handed to a command as one value."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Command = TypeVar("Command", bound=Callable[..., Any])


def gathering(
    command: Command, options: list[Callable[[Any], Any]], name: str, make: Callable[[dict[str, Any]], object]
) -> Command:
    """What the options say goes to ``make``, and what that returns to the command as ``name``."""
    before = {each.name for each in getattr(command, "__click_params__", [])}

    @functools.wraps(command)
    def gathered(**words: Any) -> Any:
        mine = {each: words.pop(each) for each in own}
        return command(**words, **{name: make(mine)})

    for option in reversed(options):
        option(gathered)
    own = [each.name for each in gathered.__click_params__ if each.name not in before]  # type: ignore[attr-defined]
    return gathered  # type: ignore[return-value]
