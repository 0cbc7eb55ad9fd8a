"""Runs all tests of the installed package: those in `tests`, the doctests of its modules, the examples of the guides."""

import os
import pathlib
import sys

import pytest

# A script's folder comes first in the path, and the sources in it have no extension module.
sys.path.pop(0)
import terrace  # noqa: E402

if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    # Workers of Ray look for modules in the folder of their driver.
    os.chdir(here / "tests")
    package = pathlib.Path(terrace.__file__).parent
    guides = [here / "../docs/src" / page for page in ("python.md", "cookbook.md")]
    paths = [here / "tests", package, here / "README.md", *guides]
    options = ["-q", "-c", str(here / "pyproject.toml"), "--import-mode=importlib", "-p", "no:cacheprovider"]
    sys.exit(pytest.main([*options, *sys.argv[1:], *(os.path.abspath(path) for path in paths)]))
