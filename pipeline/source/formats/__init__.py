"""Values decoded inside the source: JSON, Avro and protobuf, each by a schema that the query gives."""

from functools import cache

from ottla.pipeline.source.columns import ValueDecoder
from ottla.pipeline.source.options import ValueFormat


@cache
def decoder_of(wanted: ValueFormat) -> ValueDecoder:
    """Made once in a process for each schema. Raises OptionError for a schema that is none."""
    if wanted.name == "json":
        from ottla.pipeline.source.formats.json_values import JsonValues

        return JsonValues(wanted.schema)
    if wanted.name == "avro":
        from ottla.pipeline.source.formats.avro_values import AvroValues

        return AvroValues(wanted.schema)
    from ottla.pipeline.source.formats.protobuf_values import ProtobufValues

    return ProtobufValues(wanted.schema, wanted.message)
