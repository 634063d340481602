"""Writes the Python source of one message's encoder for one version.

Like the decoders it is flat, and a run of fixed-size values, up to and including the length of the variable one that
follows, is one ``Struct.pack``. An empty tagged section is a pad byte of such a run.
"""

from ottla.broker.wire.layout import FIXED, Layouts, element_of, length_format
from ottla.broker.wire.schema import Field, Message

HEAD = """def encode(value):
    buffers = []
    parts = []
    add = parts.append
    try:
"""
TAIL = """    except (StructError, AttributeError, TypeError) as error:
        raise unencodable({name!r}, {version}, error) from error
    buffers.append(join(parts))
    return buffers
"""


def encode_source(writer: "EncodeWriter") -> str:
    """Source of ``encode(value) -> buffers``; see ``codec`` for its globals."""
    name, version = writer.schema.name, writer.version
    writer.struct(name, "value")
    writer.flush()
    lines = writer.lines or ["        pass"]
    return HEAD + "\n".join(lines) + "\n" + TAIL.format(name=name, version=version)


def default_name(struct: str, field: Field) -> str:
    """The global that holds a field's default value, to compare with."""
    return f"default_{struct}_{field.name}"


class EncodeWriter:
    """Collects the lines of one encoder. ``run`` holds (format, expression) pairs not yet packed; ``x`` has none."""

    def __init__(self, schema: Message, version: int, layouts: Layouts) -> None:
        self.schema = schema
        self.version = version
        self.layouts = layouts
        self.flexible = version in schema.flexible
        self.lines: list[str] = []
        self.depth = 2
        self.run: list[tuple[str, str]] = []
        self.count = 0
        self.add = "add"

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count}"

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def packed(self, *more: tuple[str, str]) -> str:
        """The expression of the run's bytes, with ``more`` behind it; the run stays."""
        run = [*self.run, *more]
        formats = "".join(letter for letter, _ in run)
        if formats.strip("x") == "":
            return f"{bytes(len(formats))!r}"
        values = ", ".join(expression for _, expression in run if expression)
        return f"{self.layouts.packer('>' + formats)}({values})"

    def flush(self) -> None:
        """Packs the run."""
        if self.run:
            self.emit(f"{self.add}({self.packed()})")
            self.run.clear()

    def struct(self, struct: str, source: str) -> None:
        """Writes the struct in the variable ``source``."""
        tagged = []
        for field in self.schema.structs[struct]:
            if self.version not in field.versions:
                self.absent(struct, field, source)
            elif self.version in field.tagged:
                tagged.append(field)
            else:
                self.field(field, f"{source}.{field.name}")
        if tagged:
            self.tags(struct, sorted(tagged, key=lambda field: field.tag), source)
        elif self.flexible:
            self.no_tags()

    def no_tags(self) -> None:
        """An empty tagged section."""
        self.run.append(("x", ""))

    def absent(self, struct: str, field: Field, source: str) -> None:
        """A version without the field can only say its default, unless it may be dropped."""
        if not field.ignorable:
            self.emit(f"if {source}.{field.name} != {default_name(struct, field)}:")
            self.emit(f"    raise not_in_version({self.schema.name!r}, {self.version}, {field.name!r})")

    def field(self, field: Field, source: str) -> None:
        nullable = self.version in field.nullable
        if field.is_array:
            self.array(field, source, nullable)
        elif field.is_struct:
            self.nested(field, source, nullable)
        elif field.type in FIXED:
            self.run.append((FIXED[field.type], source))
        elif field.type == "string":
            self.string(field, source, nullable)
        else:
            self.payload(field, source, nullable)

    def nested(self, field: Field, source: str, nullable: bool) -> None:
        item = self.name(field.name)
        self.emit(f"{item} = {source}")
        if not nullable:
            self.struct(field.type, item)
            return
        self.flush()
        self.emit(f"if {item} is None:")
        self.emit(f'    {self.add}(b"\\xff")')
        self.emit("else:")
        self.depth += 1
        self.run.append(("b", "1"))
        self.struct(field.type, item)
        self.flush()
        self.depth -= 1

    def length(self, field: Field, expression: str, null: str) -> None:
        """Writes a length behind the run. ``null`` is the condition, or empty when there is no null."""
        letter = length_format(self.schema, self.version, field)
        value, nothing = (f"{expression} + 1", "0") if letter == "B" else (expression, "-1")
        if letter != "B" and not null:
            self.run.append((letter, value))
            self.flush()
            return
        length = self.name("length")
        self.emit(f"{length} = {nothing} if {null} else {value}" if null else f"{length} = {value}")
        if letter != "B":
            self.run.append((letter, length))
            self.flush()
            return
        short = self.packed(("B", length)) if self.run else f"VARINTS[{length}]"
        self.emit(f"if {length} < 128:")
        self.emit(f"    {self.add}({short})")
        self.emit("else:")
        self.depth += 1
        self.flush()
        long = "long_string" if field.type == "string" and not field.is_array else "encode_varint"
        self.emit(f"{self.add}({long}({length}))")
        self.depth -= 1

    def string(self, field: Field, source: str, nullable: bool) -> None:
        text = self.name(field.name)
        words = field.name.endswith("error_message")
        if nullable:
            self.emit(f"{text} = {source}")
            self.emit(f"if {text} is not None:")
            self.emit(f"    {text} = error_words({text})" if words else f"    {text} = {text}.encode()")
            self.length(field, f"len({text})", f"{text} is None")
            self.emit(f"if {text}:")
            self.emit(f"    {self.add}({text})")
        else:
            self.emit(f"{text} = {source}.encode()")
            self.length(field, f"len({text})", "")
            self.emit(f"{self.add}({text})")

    def payload(self, field: Field, source: str, nullable: bool) -> None:
        """Bytes and records: from a size on they become buffers of their own, uncopied."""
        data = self.name(field.name)
        self.emit(f"{data} = {source}")
        self.length(field, f"len({data})", f"{data} is None" if nullable else "")
        self.emit(f"if {data}:")
        self.depth += 1
        if self.add == "add":
            self.emit(f"if len({data}) >= UNCOPIED_MIN:")
            self.emit("    buffers.append(join(parts))")
            self.emit("    parts.clear()")
            self.emit(f"    buffers.append({data})")
            self.emit("else:")
            self.emit(f"    add({data})")
        else:
            self.emit(f"{self.add}({data})")
        self.depth -= 1

    def array(self, field: Field, source: str, nullable: bool) -> None:
        items = self.name(field.name)
        self.emit(f"{items} = {source}")
        self.length(field, f"len({items})", f"{items} is None" if nullable else "")
        element = element_of(field)
        if element.type in FIXED and element.type != "uuid":
            letter = FIXED[element.type]
            self.emit(f"if {items}:")
            self.emit(f'    {self.add}(numbers("{letter}", len({items})).pack(*{items}))')
            return
        item = self.name("item")
        self.emit(f"for {item} in {items} or ():" if nullable else f"for {item} in {items}:")
        self.depth += 1
        self.field(element, item)
        self.flush()
        self.depth -= 1

    def tags(self, struct: str, tagged: list[Field], source: str) -> None:
        """The tagged section: the fields that differ from their defaults, in the order of their tags."""
        self.flush()
        outer, section = self.add, self.name("tags")
        self.emit(f"{section} = []")
        for field in tagged:
            parts, body = self.name("parts"), self.name("body")
            self.emit(f"if {source}.{field.name} != {default_name(struct, field)}:")
            self.depth += 1
            self.emit(f"{parts} = []")
            self.add = f"{parts}.append"
            self.field(field, f"{source}.{field.name}")
            self.flush()
            self.emit(f"{body} = join({parts})")
            self.emit(f"{section}.append(encode_varint({field.tag}) + encode_varint(len({body})) + {body})")
            self.depth -= 1
        self.add = outer
        self.section(section)

    def section(self, section: str) -> None:
        """The tagged section of the encoded fields in the list ``section``."""
        self.emit(f"{self.add}(encode_varint(len({section})))")
        self.emit(f"{self.add}(join({section}))")
