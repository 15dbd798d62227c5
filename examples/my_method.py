"""A method of your own: mpt run --methods mpt,frozen,examples/my_method.py:MyMethod --dataset road --rare truck

The departed class's prototype, moved by the mean of what the other classes' prototypes have moved since the departure.
"""


class MyMethod:
    """Asks for the classes' means, as every statistics report has them; `context.total` would ask our own questions."""

    name = "my-method"
    training = "held-out"  # the remaining samples are kept out of training, as for MPT
    needs_departure = True  # before the departure the row shows the class's prototype as measured

    def depart(self, context):
        """In the last round with the departing vehicle: what the server keeps, anything that can be pickled."""
        everybody = context.report(context.request(scatter=False))
        staying = context.report(context.request(scatter=False), staying=True)
        return everybody.means[context.departed], staying.reference_classes, staying.means[staying.reference_classes]

    def track(self, state, context):
        """In a later round: what the server keeps from now on, and the class's prototype."""
        prototype, classes, then = state
        moved = (context.report(context.request(scatter=False)).means[classes] - then).mean(axis=0)
        context.note(moved=float((moved**2).sum() ** 0.5))  # a column of diagnostics.csv
        return state, prototype + moved
