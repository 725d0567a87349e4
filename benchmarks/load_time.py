"""What does the plugin cost a pytest run that does not use it, and what one that does before it measures?

    python benchmarks/load_time.py -o docs/results/load-time.md

Loading: interleaved runs with and without, difference of minima; the peer is pytest-benchmark, loaded and not loaded in
the same interleaving. Identity: what a run file says of code, packages and libraries, asked for in fresh processes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stamp import ROOT, stamped

ROUNDS = 40
WITHOUT = ("-p", "no:roofline", "-p", "no:benchmark")
CASES = {
    "neither": WITHOUT,
    "pytest-roofline": ("-p", "no:benchmark"),
    "pytest-benchmark": ("-p", "no:roofline"),
}
# At the begin of a run, and once more at its end, as the plugin does. Nothing is collected meanwhile, since what a
# collection takes is that of the whole process.
IDENTITY = """
import gc, json, sys, time
from pathlib import Path
import numpy, pandas, pytest, torch, triton
from pytest_roofline.engine import identity
from pytest_roofline.engine.devices import open_device
from pytest_roofline.engine.host import gather
environment = gather(open_device("cpu"))
gc.disable()
began, cpu = time.perf_counter(), time.process_time()
found = identity.identified(environment, Path(sys.argv[1]))
identity.packages(), identity.libraries()
took = time.process_time() - cpu, time.perf_counter() - began
print(json.dumps([*took, len(found.packages), len(found.code)]))
"""
MOST_IDENTITY_S = 0.03
# As users have it: compiled files are kept, so that a second run does not compile again.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}
OTHERS = (
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:rerunfailures",
    "-p",
    "no:hypothesispytest",
)


def time_once(folder: Path, arguments: tuple[str, ...]) -> float:
    """Seconds of one whole pytest process over a suite of one plain test."""
    command = [sys.executable, "-m", "pytest", "-q", *OTHERS, *arguments, str(folder)]
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=ENVIRONMENT)
    return time.perf_counter() - started


def identity(rounds: int) -> str:
    """What identity takes, as a sentence that says whether the promise is kept."""
    command = [sys.executable, "-c", IDENTITY, str(ROOT)]
    told = [
        json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        for _ in range(rounds + 1)
    ][1:]
    cpu, wall = (statistics.median(one[index] for one in told) for index in (0, 1))
    word = "kept" if cpu <= MOST_IDENTITY_S else "missed"
    return (
        f"A run asks once at its begin, and once more at its end, which code, packages and libraries it is of:\n"
        f"{cpu * 1e3:.1f} ms of its own processor time (at most {MOST_IDENTITY_S * 1e3:.0f}: {word}), "
        f"{wall * 1e3:.1f} ms by the clock, git included; the median of\n{rounds} processes, each with torch, triton, "
        f"numpy and pandas loaded ({told[0][2]} packages, {told[0][3]} checkouts)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_plain.py").write_text(
            "def test_nothing():\n    assert True\n", encoding="utf-8"
        )
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        for arguments in CASES.values():
            time_once(folder, arguments)
        for _ in range(options.rounds):
            for case, arguments in CASES.items():
                seconds[case].append(time_once(folder, arguments))
    base = min(seconds["neither"])
    lines = ["| loaded | shortest of the runs | more than with neither |", "|---|---|---|"]
    lines += [
        f"| {case} | {min(times) * 1e3:.1f} ms | {(min(times) - base) * 1e3:+.1f} ms |"
        for case, times in seconds.items()
    ]
    text = "\n".join(lines) + f"\n\n## What exactly runs\n\n{identity(options.rounds)}"
    print(text)
    if options.output:
        page = f"""# What loading the plugin costs

Made by `python benchmarks/load_time.py`: whole pytest processes over a suite of one plain test, in
{options.rounds} rounds of the three cases in turn. Python {sys.version.split()[0]}.

{text}
"""
        options.output.write_text(stamped(page), encoding="utf-8")


if __name__ == "__main__":
    main()
