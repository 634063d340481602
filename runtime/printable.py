"""Text that clients chose, as logs and tables may show it."""


def plain(text: str) -> str:
    """A name that moves the cursor, or breaks the line, would pass for another row."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def counted(number: int, what: str) -> str:
    """``3 members``, ``1 member``."""
    return f"{number} {what}{'s' * (number != 1)}"
