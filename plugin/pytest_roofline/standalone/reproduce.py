"""Measure the failing test of a bundle again: `python reproduce.py`. It needs Python 3.11, torch and pytest.

Exit status: 0 as fast as it should be, 1 it is slow (or fails) here too, 2 that cannot be told.
"""

import sys
from pathlib import Path


def run() -> int:
    """The exit status; Python's own for a traceback is 1, and would say that it is slow here."""
    if sys.version_info < (3, 11):  # noqa: UP036
        print("reproduce.py: this is Python %d.%d; expected 3.11 or newer" % sys.version_info[:2], file=sys.stderr)  # noqa: UP031
        return 2
    here = Path(__file__).resolve().parent
    sys.path.insert(0, str(here / "lib"))
    try:
        from pytest_roofline.standalone.reproducing import main

        return main(here)
    except (Exception, KeyboardInterrupt) as error:
        print(f"reproduce.py: {type(error).__name__}: {error}; nothing was found out", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
