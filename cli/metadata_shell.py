"""The shell of `ottla metadata`: words in, text out; a tree that one walks as in a file system."""

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from ottla.cli.failures import CommandError
from ottla.cli.metadata_tree import Directory, Node, root_of
from ottla.quorum.metadata.image import MetadataImage

PROMPT = ">> "
HELP = """\
ls [PATH...]     list a directory (* and ? match within a name)
cd [PATH]        go there; without PATH to the root
pwd              say where this is
cat PATH...      print a file
tree [PATH]      print everything below a directory
find [PATH]      print the path of everything below a directory
at MOMENT        look at another moment: an offset, a time, latest
help             this
exit             end"""

Path = tuple[str, ...]


class _End(Exception):
    """The person is done."""


class Shell:
    """Errors in a command are printed while one types, and raised (CommandError) when a command is given from outside."""

    def __init__(self, image_at: Callable[[str], MetadataImage], echo: Callable[[str], object]) -> None:
        """``image_at`` makes the image of a moment. Begin with the line ``at MOMENT``."""
        self._image_at = image_at
        self._echo = echo
        self._root: Directory | None = None
        self._where: Path = ()
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "ls": self._ls,
            "cd": self._cd,
            "pwd": lambda _: self._say("/" + "/".join(self._where)),
            "cat": self._cat,
            "tree": lambda words: self._tree(self._directory(words), 0),
            "find": lambda words: self._find(self._directory_path(words)),
            "at": self._at,
            "help": lambda _: self._say(HELP),
            "exit": self._exit,
            "quit": self._exit,
        }

    def run_line(self, words: list[str], *, quiet: bool = False) -> None:
        """Carries out one command. Raises CommandError; _End is the shell's own."""
        if quiet:
            echo, self._echo = self._echo, lambda _: None
            try:
                self._run(words)
            finally:
                self._echo = echo
        else:
            with contextlib.suppress(_End):
                self._run(words)

    def run_input(self) -> None:
        """Commands from standard input until its end or `exit`. On a terminal a bad command is told and the next one
        asked for; from a pipe it ends the shell (CommandError)."""
        interactive = sys.stdin.isatty()
        if interactive:
            self._complete_with_tab()
        with contextlib.suppress(_End):
            for line in self._lines(interactive):
                try:
                    self._run(_words(line))
                except CommandError as error:
                    if not interactive:
                        raise
                    self._echo(str(error))

    def _lines(self, interactive: bool) -> Iterator[str]:
        while True:
            try:
                yield input(PROMPT if interactive else "")
            except (EOFError, KeyboardInterrupt):
                return

    def _run(self, words: list[str]) -> None:
        if not words:
            return
        command = self._commands.get(words[0])
        if command is None:
            raise CommandError(f"{words[0]}: no such command; `help` lists them")
        command(words[1:])

    def _say(self, text: str) -> None:
        self._echo(text)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _at(self, words: list[str]) -> None:
        if len(words) != 1:
            raise CommandError("at: give one moment: an offset, a time, or latest")
        image = self._image_at(words[0])
        self._root = root_of(image)
        self._say(f"at offset {image.offset}")

    def _exit(self, _words: list[str]) -> None:
        raise _End

    def _ls(self, words: list[str]) -> None:
        targets = [path for word in words or ["."] for path in self._matching(word)]
        for path in targets:
            node = self._at_path(path)
            if len(targets) > 1 and isinstance(node, Directory):
                self._say(f"/{'/'.join(path)}:")
            for name in node if isinstance(node, Directory) else [path[-1]]:
                self._say(name)

    def _cd(self, words: list[str]) -> None:
        self._where = self._directory_path(words or ["/"])

    def _cat(self, words: list[str]) -> None:
        if not words:
            raise CommandError("cat: give a path")
        for path in [path for word in words for path in self._matching(word)]:
            node = self._at_path(path)
            if isinstance(node, Directory):
                raise CommandError(f"/{'/'.join(path)} is a directory")
            self._say(_text(node))

    def _tree(self, node: Directory, depth: int) -> None:
        for name in node:
            child, indent = node[name], "  " * depth
            if isinstance(child, Directory):
                self._say(f"{indent}{name}:")
                self._tree(child, depth + 1)
            else:
                self._say(f"{indent}{name}: {json.dumps(child)}")

    def _find(self, path: Path) -> None:
        self._say("/" + "/".join(path))
        node = self._at_path(path)
        for name in node if isinstance(node, Directory) else ():
            self._find((*path, name))

    # --- paths --------------------------------------------------------------------------------------------------------

    def _absolute(self, text: str) -> Path:
        path = [] if text.startswith("/") else list(self._where)
        for name in text.split("/"):
            if name == "..":
                path = path[:-1]
            elif name not in ("", "."):
                path.append(name)
        return tuple(path)

    def _at_path(self, path: Path) -> Node:
        assert self._root is not None, "the shell begins with `at`"
        node: Node = self._root
        for depth, name in enumerate(path):
            try:
                node = node[name] if isinstance(node, Directory) else _no_directory(path[:depth])
            except KeyError:
                raise CommandError(f"/{'/'.join(path[: depth + 1])}: no such file or directory") from None
        return node

    def _directory_path(self, words: list[str]) -> Path:
        if len(words) > 1:
            raise CommandError("give one path")
        path = self._absolute(words[0] if words else ".")
        if not isinstance(self._at_path(path), Directory):
            raise CommandError(f"/{'/'.join(path)} is no directory")
        return path

    def _directory(self, words: list[str]) -> Directory:
        node = self._at_path(self._directory_path(words))
        assert isinstance(node, Directory)
        return node

    def _matching(self, text: str) -> list[Path]:
        """The paths that ``text`` means, where * and ? match within a name."""
        paths: list[Path] = [()]
        for name in self._absolute(text):
            if any(letter in name for letter in "*?"):
                paths = [(*path, each) for path in paths for each in self._names_at(path) if fnmatchcase(each, name)]
            else:
                paths = [(*path, name) for path in paths]
        if not paths:
            raise CommandError(f"{text}: nothing matches")
        return paths

    def _names_at(self, path: Path) -> list[str]:
        node = self._at_path(path)
        return list(node) if isinstance(node, Directory) else []

    # --- the terminal -------------------------------------------------------------------------------------------------

    def _complete_with_tab(self) -> None:
        with contextlib.suppress(ImportError):  # a Python without readline has no editing either
            import readline

            readline.set_completer_delims(" \t\n")
            readline.set_completer(lambda text, number: dict(enumerate(self.completions(text))).get(number))
            readline.parse_and_bind("tab: complete")

    def completions(self, text: str) -> list[str]:
        """Paths that begin with ``text``."""
        head, slash, rest = text.rpartition("/")
        try:
            names = self._names_at(self._absolute(head + slash or "."))
        except CommandError:
            return []
        return [f"{head}{slash}{name}" for name in names if name.startswith(rest)]


def _no_directory(path: Path) -> Node:
    raise CommandError(f"/{'/'.join(path)} is no directory")


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _text(value: Node) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2)
