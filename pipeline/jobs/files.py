"""Small files beside a query or a table, wherever these are."""

from contextlib import suppress
from pathlib import Path

from ottla.cli.failures import CommandError
from ottla.pipeline.syncing import sync, sync_folder


class Local:
    """On this machine's disks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def numbers(self, folder: str) -> dict[int, float]:
        found: dict[int, float] = {}
        with suppress(FileNotFoundError):
            for each in (self._directory / folder).iterdir():
                if each.name.isdecimal():
                    with suppress(FileNotFoundError):  # Spark removed it behind the listing
                        found[int(each.name)] = each.stat().st_mtime
        return found

    def text(self, name: str) -> str:
        try:
            return (self._directory / name).read_text()
        except FileNotFoundError:
            raise CommandError(f"{self._directory / name}: there is no such file") from None

    def write(self, name: str, text: str) -> None:
        """Whole, or not at all, and there also after a power cut: what a replay sent is known by the plan that it wrote down before."""
        path = self._directory / name
        made = [each for each in path.parents if not each.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.tmp")
        unfinished.write_text(text)
        sync(unfinished)
        unfinished.replace(path)
        for folder in (path.parent, *(each.parent for each in made)):
            sync_folder(folder)


class Remote:
    """By pyarrow: s3://, gs://, abfs://, hdfs://."""

    def __init__(self, uri: str) -> None:
        from ottla.pipeline.jobs import missing

        missing.require("pyarrow")
        from pyarrow import fs

        try:
            self._system, self._path = fs.FileSystem.from_uri(uri)
        except (ValueError, OSError) as error:
            raise CommandError(f"{uri} cannot be read: {error}") from error

    def numbers(self, folder: str) -> dict[int, float]:
        from pyarrow import fs

        found = self._system.get_file_info(fs.FileSelector(f"{self._path}/{folder}", allow_not_found=True))
        return {int(each.base_name): each.mtime_ns / 1e9 for each in found if each.base_name.isdecimal()}

    def text(self, name: str) -> str:
        try:
            with self._system.open_input_stream(f"{self._path}/{name}") as file:
                return bytes(file.read()).decode()
        except FileNotFoundError:
            raise CommandError(f"{self._path}/{name}: there is no such file") from None

    def write(self, name: str, text: str) -> None:
        """Object stores show a file when it is whole."""
        self._system.create_dir(f"{self._path}/{name}".rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(f"{self._path}/{name}") as file:
            file.write(text.encode())


def files_of(directory: str) -> Local | Remote:
    """A path, or a URI of a file system that pyarrow knows."""
    scheme, found, rest = directory.partition("://")
    if not found:
        return Local(Path(directory.removeprefix("file:")))
    return Local(Path(rest)) if scheme == "file" else Remote(directory)
