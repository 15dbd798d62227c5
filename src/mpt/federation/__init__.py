"""A federation that a vehicle leaves: who is there, who holds what, and the rounds that all methods share."""
