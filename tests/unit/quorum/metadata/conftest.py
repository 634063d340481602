"""A metadata directory as a node leaves it, made without a node."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.quorum.batches import encode_values
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.archive import DirectoryArchive
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.store import ImageStore
from ottla.runtime.key_value import KeyValueStore
from ottla.runtime.lmdb_store import LmdbStore
from ottla.runtime.real_disk import RealDisk


def read_only(path: str) -> KeyValueStore:
    return LmdbStore(path, read_only=True)


class MetadataDirectory:
    """``add`` a segment, ``snapshot`` an image, ``open`` what came of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def add(self, batches: Sequence[CommittedBatch], base: int | None = None) -> Path:
        """One segment of these batches."""
        first = batches[0].base_offset if base is None else base
        file = self.path / f"{first:020d}.log"
        data = [
            encode_values(each.records, each.base_offset, each.epoch, each.append_time_ms, each.cause)
            for each in batches
        ]
        file.write_bytes(b"".join(data))
        return file

    def snapshot(self, image: MetadataImage, end_offset: int, epoch: int, *, whole: bool = True) -> None:
        path = self.path / f"{end_offset:020d}-{epoch:010d}.checkpoint"
        store = LmdbStore(str(path))
        ImageStore(store).replace(image)
        store.close()
        path.with_name(path.name + "-lock").unlink(missing_ok=True)
        if whole:
            path.with_name(path.name + ".json").write_text("{}", encoding="utf-8")

    def open(self) -> DirectoryArchive:
        return DirectoryArchive(RealDisk(), str(self.path), read_only)

    def names(self) -> list[str]:
        return sorted(each.name for each in self.path.iterdir())


@pytest.fixture
def directory(tmp_path: Path) -> MetadataDirectory:
    return MetadataDirectory(tmp_path / "__cluster_metadata-0")
