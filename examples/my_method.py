"""A method of your own: mpt run --methods mpt,frozen,examples/my_method.py:MyMethod --dataset road --rare truck

The departed class's prototype, moved by the mean of what the other classes' prototypes have moved since the departure.
"""


class MyMethod:
    """Asks for the classes' means, as every statistics report has them; `now.total` would ask questions of our own."""

    name = "my-method"
    training = "held-out"  # the remaining samples are kept out of training, as for MPT
    needs_departure = True  # before the departure the row shows the class's prototype as measured

    def depart(self, now):
        """In the last round with the departing vehicle: what the server keeps, anything that can be pickled."""
        everybody = now.report(now.request(scatter=False))
        staying = now.report(now.request(scatter=False), staying=True)
        return everybody.means[now.departed], staying.reference_classes, staying.means[staying.reference_classes]

    def track(self, kept, now):
        """In a later round: what the server keeps from now on, and the class's prototype."""
        prototype, classes, then = kept
        moved = (now.report(now.request(scatter=False)).means[classes] - then).mean(axis=0)
        now.note(moved=float((moved**2).sum() ** 0.5))  # a column of diagnostics.csv
        return kept, prototype + moved
