"""Real processes of this machine: the memcpy tests run again and again, each time in a fresh process."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from pytest_roofline.baselines.runs import Run, read_run
from pytest_roofline.core.samples import Samples

ROOT = Path(__file__).resolve().parents[2]
MOST_SAMPLES = 20
DIGITS = 6
BUDGET_S = 0.2


def record(path: Path, processes: int) -> None:
    """Write the samples of so many processes, after each of them: benchmark → list of processes → list of seconds."""
    found: dict[str, list[list[float]]] = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, processes + 1):
            run = run_once(Path(folder), f"process-{number}")
            for measurement in run.measurements:
                found.setdefault(measurement.label, []).append(thinned(measurement.samples))
            rows = ",\n".join(
                f"{json.dumps(name)}: {json.dumps(samples)}" for name, samples in found.items()
            )
            path.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
            print(f"process {number} of {processes}: {trouble(run)}", file=sys.stderr, flush=True)


def trouble(run: Run) -> str:
    """How many measurements the plugin itself would not trust; they are kept, since unchanged code met them too."""
    invalid = [measurement for measurement in run.measurements if measurement.invalid]
    told = f", {len(invalid)} of them INVALID ({invalid[0].invalid})" if invalid else ""
    return f"{len(run.measurements)} measurements{told}"


def run_once(folder: Path, save: str) -> Run:
    """One pytest process over the memcpy tests."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "perf_tests",
        "-k",
        "memcpy",
        "-q",
        f"--roofline-budget={BUDGET_S}",
    ]
    command += [f"--roofline-dir={folder}", f"--roofline-save={save}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(
            f"{' '.join(command)} ended with {done.returncode}; expected 0:\n{done.stdout}{done.stderr}"
        )
    return read_run(folder / "runs" / f"{save}.jsonl")


def thinned(samples: Samples) -> list[float]:
    """At most twenty samples, spread evenly over those of the blocks that count, in the order taken."""
    counted = list(samples.seconds)
    if samples.blocks and not all(block.excluded for block in samples.blocks):
        keep = [not block.excluded for block in samples.blocks for _ in range(block.samples)]
        counted = [value for value, kept in zip(counted, keep, strict=True) if kept]
    places = np.linspace(0, len(counted) - 1, min(MOST_SAMPLES, len(counted))).round().astype(int)
    return [float(f"{counted[place]:.{DIGITS}g}") for place in places]
