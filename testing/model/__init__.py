"""Running the model checker of the quorum by hand; the checker itself is `ottla.testing.raft.model.checker`."""
