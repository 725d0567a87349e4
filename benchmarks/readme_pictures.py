"""The two pictures of the README: the page of a recorded run, and the terminal of a run that this program makes.

    python benchmarks/readme_pictures.py report      # docs/pictures/report.png, by Chromium, in seconds
    python benchmarks/readme_pictures.py terminal    # docs/pictures/terminal.svg, by rich, in two minutes on idle cores

The page is that of a drill that was recorded, `DRILL`: red and green. The terminal is that of a benchmark of two sizes,
one of which does its work twice; only the path of the temporary folder is written otherwise.
"""

import argparse
import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.report.page import page

ROOT = Path(__file__).parents[1]
PICTURES, DRILL = (
    ROOT / "docs" / "pictures",
    ROOT / "docs" / "results" / "runs" / "memcpy-gate" / "drill.jsonl",
)
COLUMNS, MOST_BYTES = 100, 300_000
TEST = """\
import os

import pytest
import torch
from pytest_roofline import Work

SLOWED = int(os.environ.get("SLOWED", "0"))


@pytest.mark.parametrize("size", [2**20, 2**24])
def test_scale(roofline, size):
    x, y = (torch.rand(size, device=roofline.device) for _ in range(2))
    work = Work(read_bytes=4 * size, write_bytes=4 * size, flops=size)
    times = 2 if size == SLOWED else 1

    def scale():
        for _ in range(times):
            torch.mul(x, 0.5, out=y)

    roofline.measure(scale, work=work)
"""
RECORD = [
    f"python -m pytest test_scale.py -q --roofline-rounds=5 --roofline-save={name}"
    for name in ("a", "b", "c")
]
RECORD += [
    "roofline baseline propose a b c --all -o proposal.json",
    "roofline baseline approve proposal.json",
]
SHOWN = "pytest test_scale.py --roofline-rounds=auto"


def report(run: Path, picture: Path) -> None:
    """The first screen of a run's page.

    Raises:
        ValueError: the picture would be too heavy for a README.
    """
    sys.path.insert(0, str(ROOT))
    from tests.slow.browser import WIDTH, chromium, opened, resize

    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        # Commands on the page name the run as it is called here.
        shutil.copy(run, run.name)
        Path("page.html").write_text(page([read_run(Path(run.name))]), encoding="utf-8")
        with chromium(Path(name, "chromium")) as driver:
            # Chromium's own --screenshot takes some pages before their plots are drawn.
            resize(driver, WIDTH)
            opened(driver, Path("page.html").absolute())
            data = driver.get_screenshot_as_png()
    if len(data) > MOST_BYTES:
        raise ValueError(f"{picture.name} has {len(data)} bytes; expected {MOST_BYTES} at most")
    picture.write_bytes(data)


def terminal(picture: Path) -> None:
    """What the run prints, as a terminal of `COLUMNS` shows it.

    Raises:
        ValueError: other processes keep this machine too busy, or the run did not end red.
    """
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {**os.environ, "COLUMNS": f"{COLUMNS}", "PATH": programs}
    asked = subprocess.run(
        ["roofline", "doctor"], env=given, check=False, capture_output=True, text=True
    )
    busy = asked.stdout.splitlines()
    if busy[-1:] == ["this machine is too busy to be measured"]:
        raise ValueError(f"{busy[-1]}; expected idle cores: roofline doctor says by whom")
    with tempfile.TemporaryDirectory() as name:
        Path(name, "test_scale.py").write_text(TEST, encoding="utf-8")
        for command in RECORD:
            subprocess.run(
                shlex.split(command), cwd=name, env=given, check=True, capture_output=True
            )
        words = [sys.executable, "-m", *shlex.split(SHOWN), "--color=yes", "-p", "no:benchmark"]
        done = subprocess.run(words, cwd=name, env={**given, "SLOWED": f"{2**24}"}, check=False, capture_output=True,
                              text=True)  # fmt: skip
        text = done.stdout.replace(str(Path(name).resolve()), "~/bench")
    if done.returncode != 1:
        raise ValueError(f"the run ended with {done.returncode}; expected a red one:\n{text}")
    picture.write_text(svg(text), encoding="utf-8")


def svg(text: str) -> str:
    """What stands on a terminal, as rich draws one."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {SHOWN}\n{text.rstrip()}"))
    return console.export_svg(title="pytest-roofline")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=["report", "terminal"])
    options = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    try:
        if options.which == "report":
            report(DRILL, PICTURES / "report.png")
        else:
            terminal(PICTURES / "terminal.svg")
    except (ValueError, OSError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
