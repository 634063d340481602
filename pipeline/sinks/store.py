"""A table's files: a folder of this machine, or whatever pyarrow finds behind a URI (s3, gs, hdfs)."""

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyarrow import fs

from ottla.pipeline.sinks.errors import OptionRefused, SinkError
from ottla.pipeline.syncing import sync, sync_folder

WITHOUT_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
"""What file systems say that have no hard links: there one writer is all that is safe."""


class Found(NamedTuple):
    path: str
    """Below the table's."""
    size: int
    modified_s: float


class Store:
    """Paths are relative to the table's. Pickles: tasks get the driver's."""

    def __init__(self, uri: str) -> None:
        if not uri:
            raise OptionRefused("Say where the table is: .start(path), .save(path) or option path")
        self.uri = uri
        self.files, self.root = _opened(uri)
        self._settled: set[str] = set()

    def __getstate__(self) -> str:
        return self.uri

    def __setstate__(self, uri: str) -> None:
        self.__init__(uri)  # type: ignore[misc]

    @property
    def is_local(self) -> bool:
        return isinstance(self.files, fs.LocalFileSystem)

    def full(self, path: str) -> str:
        """As Spark and pyarrow take it."""
        return f"{self.root}/{path}" if self.is_local else f"{self.uri.rstrip('/')}/{path}"

    def create(self, path: str) -> Any:
        """A stream to a new file; its folder is made with it."""
        at = f"{self.root}/{path}"
        self.files.create_dir(os.path.dirname(at), recursive=True)
        return self.files.open_output_stream(at)

    def settle(self, path: str) -> None:
        """A file that was written outlives the machine's power, and so does its name. Object stores promise that when the stream is closed."""
        if not self.is_local:
            return
        at = f"{self.root}/{path}"
        sync(at)
        folder = os.path.dirname(at)
        sync_folder(folder)
        while folder not in self._settled and folder.startswith(self.root):
            sync_folder(os.path.dirname(folder))
            self._settled.add(folder)
            folder = os.path.dirname(folder)

    def open(self, path: str) -> Any:
        return self.files.open_input_file(f"{self.root}/{path}")

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return bytes(file.read())

    def size(self, path: str) -> int:
        return int(self.files.get_file_info(f"{self.root}/{path}").size)

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.delete_file(f"{self.root}/{path}")

    def put_new(self, path: str, data: bytes) -> None:
        """All of it or nothing under that name, also after a power cut, and FileExistsError where the name is taken."""
        name = f"{os.path.dirname(path)}/.{os.path.basename(path)}.{uuid.uuid4().hex}"
        try:
            with self.create(name) as file:
                file.write(data)
            self.settle(name)
            self._claim(name, path)
            self.settle(path)
        finally:
            self.delete(name)

    def _claim(self, name: str, path: str) -> None:
        if self.is_local:
            try:
                os.link(
                    f"{self.root}/{name}", f"{self.root}/{path}"
                )  # unlike rename, it never takes a name from another
                return
            except OSError as error:
                if error.errno not in WITHOUT_LINKS:
                    raise
        if self.files.get_file_info(f"{self.root}/{path}").type != fs.FileType.NotFound:
            raise FileExistsError(path)
        self.files.move(f"{self.root}/{name}", f"{self.root}/{path}")

    def names(self, folder: str) -> list[str]:
        """What is in a folder; nothing where there is none."""
        at = f"{self.root}/{folder}"
        if self.is_local:
            with contextlib.suppress(FileNotFoundError):
                return os.listdir(at)
            return []
        found = self.files.get_file_info(fs.FileSelector(at, allow_not_found=True))
        return [info.base_name for info in found]

    def require_no(self, folder: str, what: str) -> None:
        """Of two formats in one folder each takes the other's files for nobody's. Raises SinkError."""
        if self.names(folder):
            raise SinkError(f"At {self.uri} is {what} already: write in its format, or to another path")

    def below(self, folder: str = "") -> Iterator[Found]:
        """All files, also those that begin with a point."""
        at = f"{self.root}/{folder}".rstrip("/")
        for info in self.files.get_file_info(fs.FileSelector(at, allow_not_found=True, recursive=True)):
            if info.type == fs.FileType.File:
                yield Found(info.path[len(self.root) + 1 :], info.size, info.mtime_ns / 1e9)


def _opened(uri: str) -> tuple[fs.FileSystem, str]:
    if "://" not in uri and not uri.startswith("file:"):
        return fs.LocalFileSystem(), os.path.abspath(uri)
    files, root = fs.FileSystem.from_uri(f"file://{uri[5:]}" if uri.startswith("file:/") and "://" not in uri else uri)
    return files, root.rstrip("/")
