"""A quorum of production cores on a virtual network and clock, with faults and invariants: for tests of consensus."""
