"""`path.py:function(seed=3)` or `pkg.module:function`: a dataset from the user's own function."""

from mpt.base.extensions import Extensions, told
from mpt.base.files import importable
from mpt.data.dataset import Dataset, Split
from mpt.data.errors import DataError
from mpt.data.request import DatasetSpec
from mpt.data.resize import resized

_WANTED = "a Dataset or (classes, train_images, train_labels, test_images, test_labels)"


def from_function(point: Extensions[object], request: DatasetSpec) -> Dataset:
    """What the user's function returns, called with the arguments of the spec."""
    try:
        made = point.find(request.target)
    except DataError as error:
        raise request.error(str(error).removeprefix(f"{point.word}: ")) from error
    function = point.parse(request.target).name
    if callable(made):
        try:
            with importable():
                made = made()
        except DataError:
            raise
        except Exception as error:
            raise request.error(f"the function failed ({told(error)}), should return {_WANTED}") from error
    elif not isinstance(made, Dataset):
        raise request.error(f"{function} is of type {type(made).__name__}, should be a function or a Dataset")
    return resized(_as_dataset(request, function, made), request.image_size)


def _as_dataset(request: DatasetSpec, name: str, result: object) -> Dataset:
    if isinstance(result, Dataset):
        return result
    if not isinstance(result, tuple | list) or len(result) != 5:
        parts = f" of {len(result)}" if isinstance(result, tuple | list) else ""
        raise request.error(f"the function returned {type(result).__name__}{parts}, should be {_WANTED}")
    classes, train_images, train_labels, test_images, test_labels = result
    try:
        return Dataset(name, classes, Split(train_images, train_labels), Split(test_images, test_labels))
    except DataError as error:
        raise request.error(f"the function returned wrong {error}") from None
