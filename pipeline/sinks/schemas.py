"""Whether rows fit a table. Schemas are Spark's own JSON, which Delta keeps too."""

from typing import Any, NamedTuple

from ottla.pipeline.sinks.errors import SchemaChanged

Schema = dict[str, Any]


class Change(NamedTuple):
    """What a batch brings: the table's schema with its new columns behind, and their names."""

    schema: Schema
    added: tuple[str, ...]


def nullable(kind: Any) -> Any:
    """All of it may be null, and says nothing else: a table outlives what one query knows of its columns."""
    if not isinstance(kind, dict):
        return kind
    match kind["type"]:
        case "struct":
            return {"type": "struct", "fields": [_field(field) for field in kind["fields"]]}
        case "array":
            return {"type": "array", "elementType": nullable(kind["elementType"]), "containsNull": True}
        case "map":
            return {
                "type": "map",
                "keyType": nullable(kind["keyType"]),
                "valueType": nullable(kind["valueType"]),
                "valueContainsNull": True,
            }
        case other:
            raise SchemaChanged(f"A table cannot hold the type {other}")


def _field(field: dict[str, Any]) -> dict[str, Any]:
    return {"name": field["name"], "type": nullable(field["type"]), "nullable": True, "metadata": {}}


def names(schema: Schema) -> list[str]:
    return [field["name"] for field in schema["fields"]]


def fit(path: str, table: Schema, batch: Schema, merge: bool) -> Change:
    """The table's schema after the batch, or why it does not take it."""
    kinds = {field["name"]: field["type"] for field in table["fields"]}
    mine = {field["name"]: field["type"] for field in batch["fields"]}
    _no_twins(path, kinds, mine)
    if other := [name for name in mine if name in kinds and mine[name] != kinds[name]]:
        told = ", ".join(f"{name} is {_word(kinds[name])} there and {_word(mine[name])} here" for name in other)
        raise SchemaChanged(f"The table {path} has another schema: {told}. Cast the column, or write to a new table.")
    added = tuple(name for name in mine if name not in kinds)
    missing = [name for name in kinds if name not in mine]
    if (added or missing) and not merge:
        told = " and ".join(
            f"{what} {', '.join(which)}"
            for what, which in (("the rows also have", added), ("the rows lack", missing))
            if which
        )
        raise SchemaChanged(f"The table {path} has another schema: {told}. With mergeSchema=true they become null.")
    return Change({**table, "fields": table["fields"] + [f for f in batch["fields"] if f["name"] in added]}, added)


def same_partitions(path: str, table: list[str], batch: tuple[str, ...]) -> None:
    if list(batch) != table:
        raise SchemaChanged(
            f"The table {path} is partitioned by {', '.join(table) or 'nothing'}, the rows by {', '.join(batch) or 'nothing'}."
        )


def _no_twins(path: str, kinds: dict[str, Any], mine: dict[str, Any]) -> None:
    """Spark and Delta do not tell Topic from topic."""
    seen: dict[str, str] = {}
    for name in [*kinds, *mine]:
        if (twin := seen.setdefault(name.lower(), name)) != name:
            raise SchemaChanged(f"The table {path} cannot have both {twin} and {name}: they differ in case only.")


def _word(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
