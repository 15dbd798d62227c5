"""`pkg.module:function`: a dataset from the user's own function."""

import importlib
import os
import re

from mpt.data.dataset import Dataset, Split
from mpt.data.errors import DataError
from mpt.data.request import Request
from mpt.data.resize import resized
from mpt.files import current_folder_importable

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_WANTED = "a Dataset or (classes, train_images, train_labels, test_images, test_labels)"


def looks_like_function(spec: str) -> bool:
    """Whether `spec` has the form `pkg.module:function`."""
    return _PATH.fullmatch(spec) is not None


def load_function(request: Request) -> Dataset:
    """What the function returns, called without arguments; modules are looked for in the current folder too."""
    module_name, _, path = request.target.partition(":")
    with current_folder_importable():
        try:
            value: object = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise request.error(f"importing {module_name} needs {error.name}, which is not installed") from error
            raise request.error(f"no module {error.name!r}, should be importable from {os.getcwd()}") from None
        except Exception as error:
            raise request.error(f"{module_name} cannot be imported ({_told(error)}), should import cleanly") from error
        for part in path.split("."):
            if not hasattr(value, part):
                raise request.error(f"no {part!r} in {module_name}, should be a function there")
            value = getattr(value, part)
        if not callable(value):
            raise request.error(f"{path} is of type {type(value).__name__}, should be a function without arguments")
        try:
            result: object = value()
        except DataError:
            raise
        except Exception as error:
            raise request.error(f"the function failed ({_told(error)}), should return {_WANTED}") from error
    return resized(_as_dataset(request, path, result), request.image_size)


def _as_dataset(request: Request, name: str, result: object) -> Dataset:
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


def _told(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
