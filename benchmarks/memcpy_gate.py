"""Does the gate hold on this machine? Five saved runs, five more against them, and a drill that copies more.

    python benchmarks/memcpy_gate.py -o docs/results/memcpy-gate.md

Runs `pytest perf_tests -k memcpy` eleven times and writes a table: none of the five unchanged runs may be red; the
drill must be. Those that are compared run their undecided tests again in fresh processes (`--roofline-rounds=auto`).
Takes up to half an hour; with `--keep`, runs that a call before has ended are taken as they are.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from statistics import median

from stamp import stamped

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5
PROCESSES = 3
# The default tolerance on a CPU.
TOLERATED = 1.15


def run_suite(folder: Path, save: str, against: list[str], drill: bool) -> tuple[int, int]:
    """Run the memcpy tests once, unless that was done before; exit status and JUnit's failures."""
    junit, saved = folder / f"{save}.xml", folder / "runs" / f"{save}.jsonl"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "perf_tests",
        "-k",
        "memcpy",
        "-q",
        f"--junitxml={junit}",
    ]
    command += [f"--roofline-dir={folder}", f"--roofline-save={save}"]
    command += [f"--roofline-against={name}" for name in against]
    command += [f"--roofline-rounds={'auto' if against else PROCESSES}"]
    command += ["-p", "copy_more"] if drill else []
    environment = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks" / "drills")}
    if not junit.exists():
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(
                f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    assert suite is not None
    status = json.loads(saved.read_text(encoding="utf-8").splitlines()[-1]).get("exit_status")
    if status not in (0, 1):
        sys.exit(
            f"{saved} ended with {status}; expected 0 or 1: remove it and {junit}, and call this again"
        )
    return status, int(suite.get("failures", "0"))


def read(folder: Path, save: str) -> dict[str, tuple[float, str, int]]:
    """Of each test of a saved run: the median seconds of its first process, the verdict, how many processes it took."""
    lines = [
        json.loads(line) for line in (folder / "runs" / f"{save}.jsonl").read_text().splitlines()
    ]
    measured = [line for line in lines if line["type"] == "measurement"]
    first = {line["label"]: line["derived"]["median_s"] for line in reversed(measured)}
    # Canaries are measured beside the tests and judged with none.
    return {
        line["label"]: (first[line["label"]], line["verdict"], line.get("processes", 1))
        for line in lines
        if line["type"] == "judgement"
    }


def facts(folder: Path) -> str:
    """The machine in a line."""
    header = json.loads((folder / "runs" / "base-1.jsonl").read_text().splitlines()[0])
    environment = header["environment"]
    host = environment["host"]
    return (
        f"{host['cpu_model']} ({environment['device'].get('architecture', '')}), {host['usable_cores']} cores, "
        f"{host['usable_memory_bytes'] / 2**30:.0f} GiB, kernel {host['kernel']}, "
        f"torch {environment['software']['torch']}, {header['started'][:10]}"
    )


def table(folder: Path, outcomes: dict[str, tuple[int, int]]) -> str:
    """The result as Markdown."""
    base = [read(folder, f"base-{i}") for i in range(1, RUNS + 1)]
    again = [read(folder, f"again-{i}") for i in range(1, RUNS + 1)]
    drill = read(folder, "drill")
    lines = [
        "| size | median of the saved | max/min of all ten | the other five | processes each | copying 1.3 × the bytes "
        "| verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for label in base[0]:
        taken = [run[label][0] for run in (*base, *again)]
        centre = median(run[label][0] for run in base)
        words = [run[label][1] for run in again]
        counted = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        lines.append(
            f"| {label} | {centre * 1e6:.4g} µs | {max(taken) / min(taken):.2f} | {counted} "
            f"| {', '.join(str(run[label][2]) for run in again)} "
            f"| {drill[label][0] / centre:.2f} × the time | {drill[label][1]} |"
        )
    red = sum(status != 0 for name, (status, _) in outcomes.items() if name.startswith("again"))
    ratios = {label: drill[label][0] / median(run[label][0] for run in base) for label in base[0]}
    # What the drill did to the time, and what the gate had to see it against.
    slowed = [label for label, ratio in ratios.items() if ratio > TOLERATED]
    found = [label for label in slowed if drill[label][1] == "REGRESSED"]
    times = {label: [run[label][0] for run in (*base, *again)] for label in base[0]}
    steady = [label for label, taken in times.items() if max(taken) <= TOLERATED * min(taken)]
    status, failures = outcomes["drill"]
    lines += [
        "",
        f"Red among the {RUNS} unchanged runs: {red}. The drill: exit status {status}, JUnit failures {failures}.",
        "",
        f"With the drill copies take {min(ratios.values()):.2f} to {max(ratios.values()):.2f} times their time. Of "
        f"{len(ratios)} sizes {len(slowed)} are slower by more than the tolerance, and the gate found {len(found)} of "
        f"these. Without it {len(steady)} sizes kept within the tolerance in all of the ten runs.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    parser.add_argument(
        "--keep", type=Path, help="folder for the run files (default: a temporary one)"
    )
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="memcpy-gate-"))
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    base = [f"base-{i}" for i in range(1, RUNS + 1)]
    for name in base:
        outcomes[name] = run_suite(folder, name, [], drill=False)
    for name in [f"again-{i}" for i in range(1, RUNS + 1)]:
        outcomes[name] = run_suite(folder, name, base, drill=False)
        print(name, outcomes[name], flush=True)
    outcomes["drill"] = run_suite(folder, "drill", base, drill=True)
    text = table(folder, outcomes)
    print(text)
    if options.output:
        page = f"""# The memcpy gate on an unchanged machine, and on a slower copy

Made by `python benchmarks/memcpy_gate.py` on {facts(folder)}. Five runs of `pytest perf_tests -k memcpy` were
saved, three processes each; five more were compared with them, and one in which every copy moves 1.3 times its bytes
(`benchmarks/drills/copy_more.py`, through the hook `pytest_roofline_function`). Times are medians of one process each.

{text}

The drill makes a second call for the extra bytes, which for small copies costs more than the bytes themselves. Where
unchanged runs differ by more than a drill adds, no rule can tell the two apart.

How often the rule errs, and on what machines, is [another page](detector-quality.md): these runs are of one sitting.

The run files behind this page are in `docs/results/runs/memcpy-gate/`.
"""
        options.output.write_text(stamped(page), encoding="utf-8")


if __name__ == "__main__":
    main()
