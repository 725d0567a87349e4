"""Does `roofline ab` find what is there, and nothing where nothing is? On this machine, with its real clock.

    python benchmarks/ab_page.py -o docs/results/ab.md

Two environments over this one, whose package `seeded` asks half of the tests for 10 % more; this checkout against
itself over all host copies; and how long both took. Nothing else may run meanwhile: about a quarter of an hour.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from stamp import ROOT, stamped

from pytest_roofline.ab.making import over, packages_of

# Chunks that one call copies. Both functions are measured on both sides.
CHUNKS, SEEDED = 20, 22
PACKAGE = "CHANGED = {}\n"
SUITE = """
import time

import pytest
import seeded
import torch
from pytest_roofline import Work

@pytest.mark.parametrize("kib", [64, 256, 1024])
@pytest.mark.parametrize("kind", ["changed", "same"])
def test_copies(roofline, kind, kib):
    chunks = seeded.CHANGED if kind == "changed" else 20
    source, target = torch.ones(kib * 1024, dtype=torch.uint8), torch.zeros(kib * 1024, dtype=torch.uint8)

    def copies(source, target):
        for _ in range(chunks):
            target.copy_(source)

    # The work that a user asked for is the same on both sides.
    work = Work(read_bytes=20 * source.numel(), write_bytes=20 * source.numel(), flops=1)
    roofline.measure(copies, make_args=lambda: (source, target), work=work)

@pytest.mark.parametrize("us", [250, 500, 1000])
@pytest.mark.parametrize("kind", ["changed", "same"])
def test_waits(roofline, kind, us):
    chunks = seeded.CHANGED if kind == "changed" else 20
    roofline.measure(lambda: time.sleep(chunks * us / 1e6))
"""
# A CPU's own tolerance is 15 %, which is meant for a stored baseline.
COMMON = ("--tolerance=5%", "--json")
PYTEST = ("--roofline-device=cpu", "--roofline-budget=0.2", "-p", "no:cacheprovider")
MOST_RATIO, MOST_CONTROLS = 2.3, 0.25


def measured(cwd: Path, *words: str) -> dict[str, Any]:
    """What a run of the command told."""
    command = [str(Path(sys.executable).parent / "roofline"), "ab", *COMMON, *words]
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        print(done.stdout)
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}; expected a quiet machine")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def environments(folder: Path) -> list[str]:
    """Two interpreters, whose package differs."""
    pythons = []
    for name, chunks in (("before", CHUNKS), ("after", SEEDED)):
        python = over(folder / name)
        package = packages_of(folder / name) / "seeded.py"
        package.write_text(PACKAGE.format(chunks), encoding="utf-8")
        pythons.append(python)
    return pythons


def table(told: dict[str, Any]) -> str:
    """A row a test, worst first."""
    lines = [
        "| test | A | B | B against A, 99 % interval | A/A | processes | verdict |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in told["tests"]:
        control = row["control_change"]
        span = (
            ""
            if row["change"] is None
            else f"{row['change']:+.1%} ({row['change_low']:+.1%} … {row['change_high']:+.1%})"
        )
        times = ["" if row[name] is None else f"{row[name] * 1e6:.1f} µs" for name in ("baseline_time_s", "time_s")]
        cells = [
            f"`{row['label']}`",
            *times,
            span,
            "" if control is None else f"{control:+.1%}",
            str(row["processes"] or ""),
            row["verdict"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def took(told: dict[str, Any]) -> tuple[float, float]:
    """The wall time in total process times of the base side, and the share of blocks with a second A."""
    seconds, processes = told["seconds"], told["processes"]
    ratio = seconds["all"] / (seconds["A"] + seconds["warming A"])
    return ratio, processes.get("control", 0) / (processes["A"] / 2)


def page(seeded: dict[str, Any], same: dict[str, Any]) -> str:
    """The page, which says of each promise whether it was kept."""
    slower = [row["verdict"] for row in seeded["tests"] if "changed" in row["label"]]
    found, false = slower.count("REGRESSED"), sum(row["verdict"] == "REGRESSED" for row in same["tests"])
    beside = sum(row["verdict"] == "REGRESSED" for row in seeded["tests"] if "changed" not in row["label"])
    lines = [
        "| run | wall | A's processes | ratio, at most 2.3 | blocks with a second A, at most a quarter |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, told in (("seeded", seeded), ("against itself", same)):
        ratio, share = took(told)
        base_s = told["seconds"]["A"] + told["seconds"]["warming A"]
        kept = ("" if ratio <= MOST_RATIO else ", missed", "" if share <= MOST_CONTROLS else ", missed")
        cells = (name, f"{told['seconds']['all']:.0f} s", f"{base_s:.0f} s", f"{ratio:.2f}{kept[0]}")
        lines.append(f"| {' | '.join((*cells, f'{share:.0%}{kept[1]}'))} |")
    newline = "\n"
    return f"""# Two sides in turn, for real

Made by `python benchmarks/ab_page.py` on {same["tests"][0]["hardware"]}, tolerance 5 %, at most eight processes a side.

## A slowdown of 10 % in one package

Two environments, `python:BEFORE` against `python:AFTER`; in the second, a package asks for {SEEDED} chunks in place of
{CHUNKS}, of copies and of waiting. Of {len(slower)} tests of it {found} are REGRESSED; of the others, which are the
same on both sides, {beside}. {seeded["sentence"]}.

Waiting shows the command at work where processes agree; copies go as this machine's memory and neighbours let them.

{table(seeded)}

## This checkout against itself

`roofline ab . . -- perf_tests -k memcpy`: {false} of {len(same["tests"])} tests are REGRESSED, each by chance.
{same["sentence"]}.

{table(same)}

## How long it takes

{newline.join(lines)}

Wall time holds everything, from making both sides to the last verdict. A's processes are those of the base side, the
one that fills its caches included.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    parser.add_argument("--processes", type=int, default=8)
    options = parser.parse_args()
    most = f"--processes={options.processes}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench").mkdir()
        (folder / "bench" / "test_seeded.py").write_text(SUITE, encoding="utf-8")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        before, after = environments(folder)
        seeded = measured(folder, most, f"python:{before}", f"python:{after}", "--", "bench", *PYTEST)
        same = measured(ROOT, most, f"--dir={folder / 'same'}", ".", ".", "--", "perf_tests", "-k", "memcpy", *PYTEST)
    text = page(seeded, same)
    print(text)
    if options.output:
        options.output.write_text(stamped(text), encoding="utf-8")


if __name__ == "__main__":
    main()
