"""Which release of Triton changed a kernel? `roofline bisect` between two real wheels, without a GPU.

    python benchmarks/triton_wheels.py -o docs/results/bisect-quality.md

It installs the wheels of the index from the one end to the other, each over the present environment, and compiles a
kernel of `perf_tests/test_flash_resources.py` with each. It needs a network, two gigabytes of disk, and some minutes.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bisect_quality import WHEELS, wheels_section
from stamp import ROOT, stamp

GOOD, BAD = "with:triton==3.6.*", "with:triton==3.9.*"
KERNEL = "forward-sm_90-bf16-d64-causal"
TESTS = ("perf_tests/test_flash_resources.py", "-k", KERNEL)

INTRO = """{stamp} Made by `python benchmarks/triton_wheels.py`: the kernel `{kernel}` of
`perf_tests/test_flash_resources.py` is compiled with the wheels of the index. Its figures are exact, so one process
of a version decides. No GPU is needed."""


def search(extra: Sequence[str]) -> str:
    """Return the lines that `roofline bisect` prints, the steps ahead of the paragraph.

    `extra` are further options, such as `--find-links`. The lines are also printed as they come.

    Raises:
        CalledProcessError: the search named nothing.
    """
    roofline = Path(sys.executable).with_name("roofline")
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        command = [
            roofline,
            "bisect",
            "--dir",
            folder,
            "--name",
            "triton",
            *extra,
            GOOD,
            BAD,
            "--",
            *TESTS,
        ]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line.replace(f" --dir {folder}", ""))
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
    return "".join(lines)


def section(printed: str) -> str:
    """Return the section of the page, from what the search printed."""
    command = f"$ roofline bisect '{GOOD}' '{BAD}' -- {' '.join(TESTS)}"
    # The paragraph at the end is one long line.
    lines = "\n".join(_wrap(line) for line in printed.splitlines())
    intro = INTRO.format(stamp=stamp(), kernel=KERNEL)
    return f"{WHEELS}\n\n{intro}\n\n```text\n{command}\n{lines}\n```\n"


def _wrap(line: str, columns: int = 118) -> str:
    """Return a line with breaks between its words, so that none is longer than the page."""
    return re.sub(rf"(.{{1,{columns}}})(?: |$)", r"\1\n", line).rstrip("\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status, 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--find-links", metavar="PLACE", help="a folder of wheels, beside the index"
    )
    parser.add_argument("-o", "--output", type=Path, help="the page whose section is replaced")
    options = parser.parse_args(arguments)
    text = section(search(["--find-links", options.find_links] if options.find_links else []))
    if options.output:
        page = options.output.read_text(encoding="utf-8")
        before = page.removesuffix(wheels_section(page)).rstrip("\n")
        options.output.write_text(f"{before}\n\n{text}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
