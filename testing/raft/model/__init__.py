"""The exhaustive model checker: every interleaving of a few events on a few production cores, within bounds.

Time is taken out: any armed timer may expire at any moment, any message may arrive at any moment, in any order, or (within
the bounds) twice or never. A node crashes between any two events and loses what it had not synced.

It is fast because a cluster's state is nearly always new while a node's state seldom is: node states are interned
(`stepping`), and what an event does to a node state is computed once by the production core and remembered. A step of the
cluster is then a few dictionary look-ups.
"""
