"""What a record's value is made of: words for it, and the text of its schema."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ottla.pipeline.jobs.gathering import gathering

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
CORRUPT = "_corrupt"
"""The column that says why a value does not parse."""

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class ValueWords:
    """Without a format a value is bytes."""

    format: str | None = None
    schema: str = ""
    message: str | None = None
    prefix: str = ""

    def options(self) -> dict[str, str]:
        """Of our source, which parses while it reads."""
        if self.format is None:
            return {}
        told = {"value.format": self.format, "value.schema": self.schema}
        return told | {
            name: text for name, text in (("value.message", self.message), ("value.prefix", self.prefix)) if text
        }


def value_words(command: Command) -> Command:
    """Gives the command ``value``, a ValueWords."""
    options = [
        click.option(
            "--value-format",
            type=click.Choice([JSON, AVRO, PROTOBUF]),
            help="Parse values; their columns take the place of value.",
        ),
        click.option("--value-schema", metavar="TEXT", help='For json: "carrier string, delay double".'),
        click.option(
            "--schema-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="The same text, an Avro schema (.avsc) or a .proto in a file.",
        ),
        click.option("--value-message", metavar="NAME", help="Of protobuf: which message a value is."),
        click.option("--value-prefix", default="", help="Put before the columns' names."),
    ]
    return gathering(command, options, "value", value_of)


def value_of(words: dict[str, Any]) -> ValueWords:
    """Raises UsageError."""
    chosen, text, file = words["value_format"], words["value_schema"], words["schema_file"]
    if chosen is None:
        if any(words.values()):
            raise click.UsageError("--value-schema, --schema-file and the like say more of a --value-format: name one")
        return ValueWords()
    if (text is None) == (file is None):
        raise click.UsageError(f"--value-format {chosen} wants its schema: write one of --value-schema, --schema-file")
    schema = text if file is None else file.read_text(encoding="utf-8")
    return ValueWords(chosen, schema.strip(), words["value_message"], words["value_prefix"])
