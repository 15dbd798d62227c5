"""A method of your own: mpt run --methods mpt,frozen,examples/my_method.py:MyMethod --dataset road --rare truck

The departed class's prototype, moved by the mean of what the other classes' prototypes have moved since the departure.
"""


class MyMethod:
    """Asks for the classes' means, which every statistics report has."""

    name = "my-method"
    training = "held-out"  # the remaining samples are kept out of training, as for MPT
    needs_departure = True  # before the departure the row shows the class's prototype as measured

    def depart(self, context):
        """In the last round with the departing vehicle: what the server keeps."""
        request = context.request(scatter=False)
        everybody, staying = context.report(request), context.report(request, staying=True)
        classes = staying.reference_classes
        return everybody.means[context.departed], classes, staying.means[classes]

    def track(self, state, context):
        """In a later round: what the server keeps from now on, and the class's prototype."""
        prototype, classes, then = state
        now = context.report(context.request(scatter=False)).means[classes]
        moved = (now - then).mean(axis=0)
        context.note(moved=float((moved**2).sum() ** 0.5))  # a column of diagnostics.csv
        return state, prototype + moved
