"""What does the plugin cost a pytest run that does not use it, and what one that does before it measures?

    python benchmarks/load_time.py

It prints the line of `docs/authors/design.md`, in about two minutes. Loading: interleaved runs with and without,
difference of minima; the peer is pytest-benchmark, loaded and not loaded in the same interleaving. Identity: what a
run file says of code, packages and libraries, asked for in fresh processes.
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

from stamp import ROOT, stamp

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
identity.identified(environment, Path(sys.argv[1]))
identity.packages(), identity.libraries()
took = time.process_time() - cpu, time.perf_counter() - began
print(json.dumps(took))
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


def shortest_s(rounds: int) -> dict[str, float]:
    """Return the seconds of the shortest pytest process of each case; the cases run in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_plain.py").write_text(
            "def test_nothing():\n    assert True\n", encoding="utf-8"
        )
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        for arguments in CASES.values():
            time_once(folder, arguments)
        for _ in range(rounds):
            for case, arguments in CASES.items():
                seconds[case].append(time_once(folder, arguments))
    return {case: min(times) for case, times in seconds.items()}


def identity_s(rounds: int) -> tuple[float, float]:
    """Return the median seconds that identity takes: of its own processor time, and by the clock, git included."""
    command = [sys.executable, "-c", IDENTITY, str(ROOT)]
    outputs = [
        subprocess.run(command, check=True, capture_output=True).stdout for _ in range(rounds + 1)
    ]
    # The first fills caches.
    cpu, wall = zip(*map(json.loads, outputs[1:]), strict=True)
    return statistics.median(cpu), statistics.median(wall)


def line(shortest: dict[str, float], identity: tuple[float, float], rounds: int) -> str:
    """Return the line of the design's results, as Markdown, with whether the promise on identity is kept."""
    base, own, peer = (
        shortest[name] * 1e3 for name in ("neither", "pytest-roofline", "pytest-benchmark")
    )
    cpu, wall = identity
    word = "kept" if cpu <= MOST_IDENTITY_S else "missed"
    return (
        f"* **Load time**: a pytest process over one plain test takes {base:.1f} ms, {own - base:+.1f} ms with this "
        f"plugin, {peer - base:+.1f} ms with pytest-benchmark; each is the shortest of {rounds}, in turn, with Python "
        f"{sys.version.split()[0]}. A run asks which code, packages and libraries it is of in {cpu * 1e3:.1f} ms of "
        f"processor time (at most {MOST_IDENTITY_S * 1e3:.0f}: {word}), {wall * 1e3:.1f} ms by the clock. {stamp()} "
        "Made by `python benchmarks/load_time.py`."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    print(line(shortest_s(rounds), identity_s(rounds), rounds))


if __name__ == "__main__":
    main()
