"""The documentation site. `make docs` builds it into docs/_build/html and checks every link in it."""

import logging
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from mpt.version import __version__  # noqa: E402

logging.getLogger("alembic").setLevel("WARNING")  # Flower's, which the gallery imports

project = "MPT"
author = "The MPT authors"
copyright = "2026, The MPT authors"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinx_design",
    "docstrings",
    "generated",
    "mathml",
    "repository",
]
exclude_patterns = ["_build", "_ext", "_generated"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["config.cache", "myst.xref_missing"]  # check_links.py looks at every link of the built site

smartquotes = False
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
add_module_names = False

html_theme = "furo"
html_title = "MPT"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_math_renderer = "mathml"
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery", "../examples/notebooks"],
    "gallery_dirs": ["gallery", "notebooks"],
    "filename_pattern": r"\.py$",
    "plot_gallery": os.environ.get("GALLERY", "run") == "run",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "capture_repr": (),
    "show_signature": False,
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib",),
    "min_reported_time": 1,
    "write_computation_times": False,
    "copyfile_regex": r".*\.rst",
}
