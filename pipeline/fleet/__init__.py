"""A fleet of vehicles that sends telemetry: seeded load whose every record can be found again.

Each record carries its vehicle and a number, 0, 1, 2, ... in the order in which the vehicle's records are sent. So what got lost, came
twice or changed places is told by the records themselves (``judge``), wherever they went.

Everything is arithmetic on (seed, vehicle, number): no state is carried from record to record, so any part of the fleet can be made
anywhere, in any order, by any number of tasks, and is the same to the byte.
"""
