"""The roles of a replica, a class each. A role is what is true of the replica in one epoch; none performs anything."""
