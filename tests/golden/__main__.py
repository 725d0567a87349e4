"""`python -m tests.golden [-k CASE]`: write the files of the golden cases anew, to be read as a diff."""

import os
import sys

import pytest

# Nothing that imports the plugin, which pytest wants to do itself.
from .stored import HERE, RENEW

if __name__ == "__main__":
    os.environ[RENEW] = "1"
    sys.exit(pytest.main([str(HERE), "-q", *sys.argv[1:]]))
