"""Measure the failing test of a bundle again: `python reproduce.py`. It needs Python 3.11, torch and pytest.

Exit status: 0 as fast as it should be, 1 the slowness is here too, 2 it could not be measured.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    HERE = Path(__file__).resolve().parent
    sys.path.insert(0, str(HERE / "lib"))
    from pytest_roofline.standalone.reproducing import main

    sys.exit(main(HERE))
