"""Groups of commands whose modules are imported when they are called, not when they are listed: help within 150 ms."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

Table = Mapping[str, tuple[str, str, str]]
"""command: (module, attribute, one line of help)"""


class LazyGroup(click.Group):
    """``title`` stands above the commands in the help."""

    def __init__(self, *args: Any, table: Table, title: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self._table, self._title = table, title

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, attribute, _ = self._table[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(self._title):
            formatter.write_dl([(name, words) for name, (_, _, words) in self._table.items()])
