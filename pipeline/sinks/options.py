"""What a user may say about a table, and what follows for its columns."""

import difflib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ottla.pipeline.sinks.errors import OptionRefused
from ottla.pipeline.sinks.ranges import Named
from ottla.pipeline.sinks.schemas import Schema, names, nullable

OFFSETS = "topic,partition,offset"
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
OF_SPARK = ("checkpointLocation", "queryName")
"""What Spark keeps among a writer's options for itself."""
LEFT_ALONE = ("_", ".")
"""With these begin names of what is no part of a table, for Delta and for Spark."""

_NAMES = (
    *OF_SPARK,
    "path",
    "partitionBy",
    "mergeSchema",
    "batchColumn",
    "deadLetterPath",
    "deadLetterColumn",
    "deadLetterOnly",
    "compression",
    "targetFileBytes",
    "targetFileRows",
    "offsetColumns",
    "offsets",
    "commitInfo",
    "txnAppId",
    "txnVersion",
)
"""Every option without ``storage.``."""


@dataclass(frozen=True)
class TableOptions:
    path: str
    partition_by: tuple[str, ...]
    merge: bool
    compression: str
    file_bytes: int
    file_rows: int
    offset_columns: tuple[str, ...]
    batch_column: str
    dead_path: str
    dead_column: str
    dead_only: tuple[str, ...]
    app_id: str
    app_version: int
    info: str
    offsets: Named | None
    storage: dict[str, str]


def table_options(told: Mapping[str, str]) -> TableOptions:
    said = {name.lower(): value for name, value in told.items()}
    refuse_unknown(said, _NAMES, "storage.")
    compression = said.get("compression", "zstd").lower()
    if compression not in COMPRESSIONS:
        raise OptionRefused(f"compression={compression}: it is one of {', '.join(COMPRESSIONS)}")
    dead = said.get("deadletterpath", ""), said.get("deadlettercolumn", "")
    if bool(dead[0]) != bool(dead[1]):
        raise OptionRefused("deadLetterPath and deadLetterColumn go together")
    _apart(said.get("path", ""), dead[0], said.get("checkpointlocation", ""))
    app_id, app_version = transaction(said)
    return TableOptions(
        path=said.get("path", ""),
        partition_by=_list(said.get("partitionby", "")),
        merge=_flag(said, "mergeSchema"),
        compression=compression,
        file_bytes=number(said, "targetFileBytes", 128 << 20),
        file_rows=number(said, "targetFileRows", 1 << 31),
        offset_columns=_list(said.get("offsetcolumns", OFFSETS)),
        batch_column=said.get("batchcolumn", ""),
        dead_path=dead[0],
        dead_column=dead[1],
        dead_only=_list(said.get("deadletteronly", "")) if dead[1] else (),
        app_id=app_id,
        app_version=app_version,
        info=said.get("commitinfo", ""),
        offsets=_offsets(said["offsets"]) if "offsets" in said else None,
        storage={name.removeprefix("storage."): value for name, value in said.items() if name.startswith("storage.")},
    )


def _apart(table: str, dead: str, checkpoint: str) -> None:
    """``vacuum`` removes what no commit of a table names: another table in its folder, or a query's offsets, which then begins anew."""
    if dead and PurePath(_place(dead)) == PurePath(_place(table)):
        raise OptionRefused(f"deadLetterPath={dead}: that is the table itself")
    if dead and (_below(dead, table) or _below(table, dead)):
        raise OptionRefused(
            f"deadLetterPath={dead}: one table in the other ({table}) goes with its vacuum: put it beside"
        )
    if (inner := _below(checkpoint, table)) and not inner.startswith(LEFT_ALONE):
        raise OptionRefused(
            f"checkpointLocation={checkpoint}: in the table ({table}) it goes with its vacuum: put it beside, or call it _{inner}"
        )


def _below(path: str, folder: str) -> str:
    """The first name on the way from the folder to the path; empty where it is not in there."""
    inner, outer = PurePath(_place(path)), PurePath(_place(folder))
    return inner.relative_to(outer).parts[0] if path and folder and outer in inner.parents else ""


def _place(path: str) -> str:
    if path.startswith("file:"):
        path = path.removeprefix("file:").removeprefix("//")
    return path if "://" in path else os.path.abspath(path)


def refuse_unknown(said: Iterable[str], names: Iterable[str], prefix: str) -> None:
    """Of ``said``, in small letters: none is passed over, for a write by another rule than was asked for is found too late."""
    known = {name.lower(): name for name in names}
    for name in said:
        if name not in known and not name.startswith(prefix):
            near = difflib.get_close_matches(name, known, 1)
            hint = f"is {known[near[0]]} meant?" if near else "see docs/pipeline.md"
            raise OptionRefused(f"there is no option {name}; {hint}")


def transaction(said: Mapping[str, str]) -> tuple[str, int]:
    """The names that Delta's own writer has for a write that may come twice."""
    app_id, version = said.get("txnappid", ""), said.get("txnversion", "")
    if bool(app_id) != bool(version):
        raise OptionRefused("txnAppId and txnVersion go together")
    if version and not version.isdecimal():
        raise OptionRefused(f"txnVersion={version}: it is a number, one that rises from write to write")
    return app_id, int(version or 0)


def table_schema(options: TableOptions, rows: Schema) -> Schema:
    """Of the table, from that of the rows."""
    schema: Schema = nullable(rows)
    if options.dead_column:
        _there(options.dead_column, schema, "deadLetterColumn")
        for name in options.dead_only:
            _there(name, schema, "deadLetterOnly")
        left_out = {options.dead_column, *options.dead_only}
        schema["fields"] = [field for field in schema["fields"] if field["name"] not in left_out]
    if options.batch_column:
        if options.batch_column in names(schema):
            raise OptionRefused(f"batchColumn={options.batch_column}: the rows have a column of that name")
        schema["fields"].append(_long(options.batch_column))
    for name in options.partition_by:
        _there(name, schema, "partitionBy")
        kind = next(field["type"] for field in schema["fields"] if field["name"] == name)
        if kind not in ("string", "integer", "long", "short", "byte", "date", "boolean"):
            raise OptionRefused(
                f"partitionBy={name}: a table cannot be partitioned by {kind if isinstance(kind, str) else kind['type']}"
            )
    if len(options.partition_by) == len(schema["fields"]):
        raise OptionRefused("partitionBy leaves no column for the files")
    return schema


def dead_schema(options: TableOptions, rows: Schema) -> Schema:
    schema: Schema = nullable(rows)
    if options.batch_column:
        schema["fields"].append(_long(options.batch_column))
    return schema


def _long(name: str) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": True, "metadata": {}}


def _there(name: str, schema: Schema, option: str) -> None:
    if name not in names(schema):
        raise OptionRefused(f"{option}={name}: the rows have no such column, only {', '.join(names(schema))}")


def _offsets(text: str) -> Named:
    try:
        told = json.loads(text)
        return {topic: {str(int(p)): _range(values) for p, values in parts.items()} for topic, parts in told.items()}
    except (ValueError, TypeError, AttributeError) as error:
        shape = '{"topic": {"0": [first, last, rows]}}'
        raise OptionRefused(f"offsets={text}: it is JSON like {shape}") from error


def _range(values: Any) -> list[int]:
    first, last, rows = (int(value) for value in values)
    return [first, last, rows]


def _list(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _flag(said: Mapping[str, str], name: str) -> bool:
    value = said.get(name.lower(), "false").lower()
    if value not in ("true", "false"):
        raise OptionRefused(f"{name}={value}: it is true or false")
    return value == "true"


def number(said: Mapping[str, str], name: str, default: int) -> int:
    value = said.get(name.lower(), str(default))
    if not value.isdecimal() or int(value) < 1:
        raise OptionRefused(f"{name}={value}: it is a number above 0")
    return int(value)
