"""Flower's side of a fleet: apps for `flwr run`, and pieces for an app of your own. Tested with flwr 1.41."""
