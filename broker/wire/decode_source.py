"""Writes the Python source of one message's decoder for one version.

The function is flat: structs and arrays are read in place, in nested loops, without a call. A run of fixed-size
fields, up to and including the length of the variable one that follows, is one ``Struct.unpack_from``.

Bounds: a read of fixed size at a position beyond the end raises by itself, and a slice never reaches beyond the end,
so a length that is too large needs no check of its own: the position it leads to fails the next read or the last
line. Only counts are checked first, because a count is what makes the loop allocate.
"""

from struct import calcsize

from ottla.broker.wire.layout import FIXED, Layouts, element_of, field_minimum_size, length_format
from ottla.broker.wire.schema import Field, Message

LISTED_MAX = {"JoinGroupRequest": 20_000, "SyncGroupRequest": 20_000}
"""The longest list in requests that may be large for what their entries carry (`broker/network/limits.py`). Those are a group's members, or a few
protocols: five million empty ones would take everybody three seconds."""

HEAD = """def decode(view, pos):
    limit = len(view)
    try:
"""
TAIL = """    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise malformed({name!r}, {version}, error) from error
    if pos > limit:
        raise truncated()
    return value, pos
"""


def decode_source(writer: "DecodeWriter") -> str:
    """Source of ``decode(view, pos) -> (value, position behind it)``; see ``codec`` for its globals."""
    name, version = writer.schema.name, writer.version
    writer.struct(name, "value")
    return HEAD + "\n".join(writer.lines) + "\n" + TAIL.format(name=name, version=version)


class DecodeWriter:
    """Collects the lines of one decoder. ``run`` holds (format, variable) pairs not yet unpacked."""

    def __init__(self, schema: Message, version: int, layouts: Layouts) -> None:
        self.layouts = layouts
        self.schema = schema
        self.version = version
        self.flexible = version in schema.flexible
        self.lines: list[str] = []
        self.depth = 2
        self.run: list[tuple[str, str]] = []
        self.count = 0

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count}"

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def flush(self) -> None:
        """Unpacks the run."""
        if not self.run:
            return
        formats = "".join(letter for letter, _ in self.run)
        variables = ", ".join(variable for _, variable in self.run)
        if formats == "B":
            self.emit(f"{variables} = view[pos]")
        else:
            comma = "," * (len(self.run) == 1)
            self.emit(f"{variables}{comma} = {self.layouts.unpacker('>' + formats)}(view, pos)")
        self.emit(f"pos += {calcsize('>' + formats)}")
        self.run.clear()

    def struct(self, struct: str, target: str) -> None:
        """Reads a struct into the variable ``target``."""
        arguments = []
        tagged: list[tuple[Field, str]] = []
        for field in self.schema.structs[struct]:
            if self.version not in field.versions:
                arguments.append(field.default_expression)
                continue
            variable = self.name(field.name)
            arguments.append(variable)
            if self.version in field.tagged:
                tagged.append((field, variable))
            else:
                self.field(field, variable)
        if self.flexible:
            self.tags(tagged)
        self.flush()
        self.emit(f"{target} = {struct}({', '.join(arguments)})")

    def field(self, field: Field, target: str) -> None:
        nullable = self.version in field.nullable
        if field.is_array:
            self.array(field, target, nullable)
        elif field.is_struct:
            self.nested(field, target, nullable)
        elif field.type in FIXED:
            self.run.append((FIXED[field.type], target))
        else:
            self.sized(field, target, nullable)

    def nested(self, field: Field, target: str, nullable: bool) -> None:
        if not nullable:
            self.struct(field.type, target)
            return
        present = self.name("present")
        self.run.append(("b", present))
        self.flush()
        self.emit(f"{target} = None")
        self.emit(f"if {present} >= 0:")
        self.depth += 1
        self.struct(field.type, target)
        self.depth -= 1

    def length(self, field: Field) -> tuple[str, str]:
        """Reads a length; returns its variable, and the source of "it is not null"."""
        length = self.name("length")
        letter = length_format(self.schema, self.version, field)
        self.run.append((letter, length))
        self.flush()
        if letter != "B":
            return length, f"{length} >= 0"
        more = "more_string" if field.type == "string" and not field.is_array else "more_varint"
        self.emit(f"if {length} > 127:")
        self.emit(f"    {length}, pos = {more}(view, pos, {length})")
        return length, f"{length} > 0"

    def sized(self, field: Field, target: str, nullable: bool) -> None:
        """A string, bytes or records."""
        length, present = self.length(field)
        end = f"pos + {length} - 1" if present.endswith("> 0") else f"pos + {length}"
        piece = f"view[pos : (pos := {end})]"
        # Bytes are copied: the frame's buffer is reused when the handler returns. Records are the payload: never.
        value = {"string": f'str({piece}, "utf-8")', "bytes": f"bytes({piece})", "records": piece}[field.type]
        if nullable:
            self.emit(f"{target} = {value} if {present} else None")
        else:
            self.refuse_null(present)
            self.emit(f"{target} = {value}")

    def refuse_null(self, present: str) -> None:
        self.emit(f"if not {present}:")
        self.emit("    raise unexpected_null()")

    def array(self, field: Field, target: str, nullable: bool) -> None:
        length, present = self.length(field)
        if nullable:
            self.emit(f"{target} = None")
            self.emit(f"if {present}:")
            self.depth += 1
        else:
            self.refuse_null(present)
        if present.endswith("> 0"):
            self.emit(f"{length} -= 1")
        element = element_of(field)
        size = field_minimum_size(self.schema, self.version, element)
        self.emit(f"if {length} * {size} > limit - pos:")
        self.emit(f"    raise too_many({length}, limit - pos)")
        listed_max = LISTED_MAX.get(self.schema.name)
        if listed_max is not None:
            self.emit(f"if {length} > {listed_max}:")
            self.emit(f"    raise too_long({length}, {listed_max})")
        self.elements(element, target, length)
        self.depth -= nullable

    def elements(self, element: Field, target: str, length: str) -> None:
        letter = FIXED.get(element.type)
        if element.type == "uuid":
            self.emit(f"{target} = [bytes(view[at : at + 16]) for at in range(pos, pos + {length} * 16, 16)]")
            self.emit(f"pos += {length} * 16")
            return
        if letter:
            self.emit(f'{target} = list(numbers("{letter}", {length}).unpack_from(view, pos))')
            self.emit(f"pos += {length} * {calcsize('>' + letter)}")
            return
        item = self.name("item")
        self.emit(f"{target} = []")
        self.emit(f"for _ in range({length}):")
        self.depth += 1
        self.field(element, item)
        self.flush()
        self.emit(f"{target}.append({item})")
        self.depth -= 1

    def tags(self, tagged: list[tuple[Field, str]]) -> None:
        """The tagged section: known fields are read, others stepped over."""
        count = self.name("tags")
        self.run.append(("B", count))
        self.flush()
        for field, target in tagged:
            self.emit(f"{target} = {field.default_expression}")
        self.emit(f"if {count}:")
        self.depth += 1
        if tagged:
            self.known_tags(tagged, count)
        else:
            self.emit(f"pos = skip_tags(view, pos, {count})")
        self.depth -= 1

    def known_tags(self, tagged: list[tuple[Field, str]], count: str) -> None:
        tag, size, end = self.name("tag"), self.name("size"), self.name("end")
        self.emit(f"{count}, pos = tag_count(view, pos, {count})")
        self.emit(f"for _ in range({count}):")
        self.depth += 1
        self.emit(f"{tag}, pos = read_varint(view, pos)")
        self.emit(f"{size}, pos = read_varint(view, pos)")
        self.emit(f"{end} = pos + {size}")
        for field, target in tagged:
            self.emit(f"if {tag} == {field.tag}:")
            self.depth += 1
            self.field(field, target)
            self.flush()
            self.emit(f"if pos != {end}:")
            self.emit(f"    raise tag_of_size({tag}, {size})")
            self.depth -= 1
        self.emit(f"pos = {end}")
        self.depth -= 1
