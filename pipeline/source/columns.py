"""The columns of the source: Kafka's, those that values are decoded to, and why a value could not be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.arrow.schema import schema as kafka_schema
from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.source.options import KAFKA_COLUMNS, SourceOptions, ValueFormat

CORRUPT = "_corrupt"
_BEFORE, _BEHIND = ("key",), ("topic", "partition", "offset", "timestamp", "timestampType", "headers")


class ValueDecoder(Protocol):
    """Decodes values of one format."""

    @property
    def schema(self) -> pa.Schema: ...

    def decode(self, values: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        """The columns, and a sentence about each value that could not be decoded: null for the others, and their
        columns are null. A null value, a tombstone, is null in all columns, and no fault."""


@dataclass(frozen=True)
class Layout:
    """Which columns there are, in their order; ``fetched`` are Kafka's among them that have to be built."""

    columns: tuple[str, ...]
    fetched: tuple[str, ...]
    decoded: tuple[str, ...] = ()
    format: ValueFormat | None = None

    def laid_out(self, batch: pa.RecordBatch, values: ValueDecoder | None, target: pa.Schema) -> pa.RecordBatch:
        """A batch of ``fetched`` as one of ``columns``, with exactly the types of ``target``."""
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        if values is not None:
            columns, faults = values.decode(arrays["value"])
            if self.format is not None and self.format.keeps_faulty:
                arrays["value"] = pc.if_else(faults.is_valid(), arrays["value"], None)
            arrays = {**arrays, **dict(zip(self.decoded, columns, strict=True)), CORRUPT: faults}
        found = [arrays[name] for name in self.columns]
        fitting = [
            array if array.type.equals(field.type) else array.cast(field.type)
            for array, field in zip(found, target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(fitting, schema=target)


def layout_of(options: SourceOptions, decoder: ValueDecoder | None) -> tuple[Layout, pa.Schema]:
    """The layout and its schema. Raises OptionError for columns that there are not, or whose name is taken."""
    types = dict(zip(KAFKA_COLUMNS, kafka_schema(KAFKA_COLUMNS).types, strict=True))
    usual = [name for name in KAFKA_COLUMNS if name != "headers" or options.includes_headers]
    decoded: tuple[str, ...] = ()
    if decoder is not None and options.format is not None:
        decoded = tuple(options.format.prefix + name for name in decoder.schema.names)
        _check_names(decoded)
        types |= dict(zip(decoded, decoder.schema.types, strict=True)) | {CORRUPT: pa.string()}
        behind = [name for name in _BEHIND if name in usual]
        usual = [*_BEFORE, *decoded, CORRUPT, *["value"] * options.format.keeps_faulty, *behind]
    columns = tuple(usual) if options.columns is None else _chosen(options.columns, list(types))
    needs_values = any(name in decoded or name == CORRUPT for name in columns)
    fetched = [name for name in KAFKA_COLUMNS if name in columns or (needs_values and name == "value")]
    layout = Layout(columns, tuple(fetched) or ("offset",), decoded, options.format if needs_values else None)
    return layout, pa.schema([(name, types[name]) for name in columns])


def _check_names(decoded: Sequence[str]) -> None:
    taken = [name for name in decoded if name.lower() in {known.lower() for known in (*KAFKA_COLUMNS, CORRUPT)}]
    if taken:
        raise OptionError(
            f"the schema of the values has {', '.join(taken)}, which is a column of Kafka's: set option value.prefix"
        )


def _chosen(columns: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    spelled = {name.lower(): name for name in known}
    unknown = [name for name in columns if name.lower() not in spelled]
    if unknown or not columns:
        raise OptionError(f"option columns={','.join(columns)}: there is {', '.join(known)}")
    return tuple(spelled[name.lower()] for name in columns)
