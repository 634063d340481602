"""Values decoded inside the source: JSON, Avro and protobuf, each by a schema that the query gives."""

from functools import cache

from ottla.pipeline.source.columns import ValueDecoder
from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.source.options import ValueFormat


@cache
def decoder_of(wanted: ValueFormat) -> ValueDecoder:
    """Made once in a process for each schema. Raises OptionError for a schema that is none."""
    if wanted.name == "json":
        from ottla.pipeline.source.formats.json_values import JsonValues

        return JsonValues(wanted.schema)
    raise OptionError(f"option value.format={wanted.name} is not read yet")
