"""Runs all tests of the installed package: these files, the doctests of its modules, the examples of the guides."""

import pathlib
import sys

import pytest

# A script's folder comes first in the path, and the sources in it have no extension module.
sys.path.pop(0)
import terrace  # noqa: E402

if __name__ == "__main__":
    package = str(pathlib.Path(terrace.__file__).parent)
    paths = ["tests", package, "README.md", "../docs/src/python.md"]
    sys.exit(pytest.main(["-q", "--import-mode=importlib", "-p", "no:cacheprovider", *sys.argv[1:], *paths]))
