"""How much of this package one measurement executes: how many functions, in how many files.

Whoever is new must follow the main job, and every function on its way is one more to read. Run it with
`python benchmarks/executed.py`: it runs one test on the CPU and prints two counts, of the call of `roofline.measure`
alone and of the test's whole call phase with its verdict; `--list` names the functions.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import pytest_roofline

PACKAGE = str(Path(pytest_roofline.__file__).parent)
# One call of a plain function, the README's example with the data checked: nothing that a test need not do.
TEST = """
import torch
from pytest_roofline import Work

def test_scale(roofline):
    x = torch.ones(1 << 20)
    out = torch.empty_like(x)
    work = Work(read_bytes=x.nbytes, write_bytes=out.nbytes)
    roofline.measure(lambda: torch.mul(x, 2, out=out), work=work, verify=lambda: bool((out == 2).all()))
"""
# Neighbours on the cores would make it INVALID, and nothing would be compared.
QUIET = """
from pytest_roofline.engine.blocks import conditions
from pytest_roofline.engine.devices import cpu

cpu.too_busy = lambda taken: ""
conditions.MOST_PREEMPTIONS_HZ = float("inf")
"""
OPTIONS = ("--roofline-device=cpu", "--roofline-rounds=1")
# Bodies of modules and classes run when they are imported, whoever comes first; comprehensions are a part of the
# function that they stand in.
NO_FUNCTIONS = ("<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class Counted:
    """The functions of the package that were executed while this was switched on.

    As a plugin of pytest it switches itself on for the call phase of the test.
    """

    def __init__(self) -> None:
        self.measure: set[CodeType] = set()
        self.call: set[CodeType] = set()
        self._measuring = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Count what the body of the test and its verdict execute."""
        threading.setprofile(self._seen)
        sys.setprofile(self._seen)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def _seen(self, frame: FrameType, event: str, _value: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        outermost = code.co_qualname == "Roofline.measure"
        if event == "return":
            self._measuring &= not outermost
            return
        self._measuring |= outermost
        if _is_function(code):
            self.call.add(code)
            if self._measuring:
                self.measure.add(code)


def _is_function(code: CodeType) -> bool:
    # Only the code of a function has local variables of its own from the start; a class body has none (inspect.h).
    return code.co_name not in NO_FUNCTIONS and bool(code.co_flags & 0x02)


def count() -> Counted:
    """What one test on the CPU executes that is compared with a run before it.

    Raises:
        subprocess.CalledProcessError: the run before it failed.
        SystemExit: the test did not measure.
    """
    counted = Counted()
    with tempfile.TemporaryDirectory() as folder:
        test = Path(folder, "test_executed.py")
        test.write_text(TEST, encoding="utf-8")
        Path(folder, "conftest.py").write_text(QUIET, encoding="utf-8")
        own = [
            "-q",
            "-p",
            "no:cacheprovider",
            f"--rootdir={folder}",
            f"--roofline-dir={folder}/runs",
            *OPTIONS,
        ]
        # In a process of its own, since what this one has found out once it would not ask again.
        before = [sys.executable, "-m", "pytest", *own, "--roofline-save=before", str(test)]
        subprocess.run(before, check=True, stdout=subprocess.DEVNULL)
        status = pytest.main([*own, "--roofline-against=before", str(test)], [counted])
    # On a busy machine it may be slower than before, which changes nothing of what is executed.
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not counted.measure:
        raise SystemExit(f"the test ended with status {int(status)}")
    return counted


def sentence(what: str, codes: set[CodeType]) -> str:
    """`roofline.measure: 240 functions in 38 files`."""
    return f"{what}: {len(codes)} functions in {len({code.co_filename for code in codes})} files"


def main() -> None:
    """Print both counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--list", action="store_true", help="name every function of the call of roofline.measure"
    )
    options = parser.parse_args()
    counted = count()
    print(sentence("roofline.measure", counted.measure))
    print(sentence("the whole call phase", counted.call))
    if options.list:
        for name in sorted(
            f"{code.co_filename[len(PACKAGE) + 1 :]}: {code.co_qualname}"
            for code in counted.measure
        ):
            print(name)


if __name__ == "__main__":
    main()
