"""A quorum node's surroundings in memory: a log and a store without a disk, a transport without a network."""
