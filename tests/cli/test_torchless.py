"""Commands over stored runs where torch cannot be imported; `.ci/wheel` tries the same where it is not installed."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "torchless.py"
# As if it were not installed, for whoever imports it or looks for it.
HIDDEN = """
import importlib.abc, runpy, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)

sys.meta_path.insert(0, Hidden())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_every_command_over_stored_runs_works_without_torch_and_measuring_says_what_to_type(
    tmp_path,
):
    command = [sys.executable, "-c", HIDDEN, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
