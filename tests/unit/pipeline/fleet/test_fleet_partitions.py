"""Vehicles go where Kafka's own producers would send them."""

import numpy as np
import pytest
from kafka.partitioner.default import murmur2 as reference

from ottla.pipeline.fleet.partitions import murmur2, partitions_of


@pytest.mark.parametrize("length", range(20))
def test_murmur2_is_that_of_another_client(length: int) -> None:
    keys = np.random.default_rng(length).integers(0, 256, (50, length), dtype=np.uint8)
    assert murmur2(keys).tolist() == [reference(bytes(key)) & 0xFFFF_FFFF for key in keys]


def test_a_partition_is_one_of_those_there_are() -> None:
    keys = np.random.default_rng(1).integers(0, 256, (1_000, 17), dtype=np.uint8)
    assert set(partitions_of(keys, 7).tolist()) == set(range(7))
