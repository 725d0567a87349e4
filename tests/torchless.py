"""What works where torch is not installed: commands over stored runs, and collecting tests that measure.

`python tests/torchless.py FOLDER` tries them there, and ends with status 1 where one ends otherwise than its row says.
It needs the package, its extra `report`, and nothing of the tests' packages.
"""

import io
import json
import os
import shutil
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from pytest_roofline.cli.main import main as roofline

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "docs" / "results" / "runs" / "memcpy-gate"
LOG = ROOT / "tests" / "exchange" / "data" / "mi300x-babelstream.csv"
NODES, NIGHTS, SLOW_NODE, SLOWER = 6, 6, 3, 1.4
SUITE = """
def test_scale(roofline):
    roofline.measure(lambda: None)
"""
MISSING = "torch is not installed, but measuring needs torch"


def _nights_of(node: int) -> str:
    """Return the run files of a node, as `compare` takes them."""
    return ",".join(f"fleet/{node}-{night}.jsonl" for night in range(NIGHTS))


# Each command, its exit status, and a part of what it prints.
COMMANDS = (
    (f"roofline compare {_nights_of(0)} {_nights_of(SLOW_NODE)}", 1, "REGRESSED"),
    ("roofline explain drill 4KiB", 0, "adjusted for all tests"),
    ("roofline report base -o page", 0, "page"),
    ("roofline import babelstream.csv --save imported", 0, "BabelStream"),
    ("roofline export base --to bencher -o bencher.json", 0, "bencher.json"),
    ("roofline baseline propose base -o proposal.json", 0, "proposal.json"),
    ("roofline baseline approve proposal.json", 0, "baselines"),
    ("roofline baseline show", 0, "memcpy"),
    ("roofline baseline check", 0, "wrong in"),
    ("roofline fleet fleet", 1, f"node{SLOW_NODE}"),
    ("roofline history fleet", 0, "memcpy"),
    ("roofline init bench --ci none", 0, "bench"),
    ("roofline ab . . --run=./figure.sh --higher=rate", 0, "GREEN: 1 of 1 fast enough"),
    ("roofline doctor --write-expect node.json", 0, "torch is not installed"),
    ("roofline doctor --measure", 2, MISSING),
    ("roofline hardware h100-sxm5", 0, "memory_GBps"),
    ("pytest test_scale.py --collect-only -q", 0, "test_scale.py::test_scale"),
    ("pytest test_scale.py", 4, MISSING),
    ("pytest test_import.py", 2, MISSING),
)


def make_scene(folder: Path) -> None:
    """Copy stored runs, a log of another tool, and tests into a folder."""
    saved = folder / ".roofline" / "runs"
    saved.mkdir(parents=True)
    shutil.copy(RUNS / "base-2.jsonl", saved / "base.jsonl")
    shutil.copy(RUNS / "drill.jsonl", saved / "drill.jsonl")
    if "import" in roofline.commands:
        shutil.copy(LOG, folder / "babelstream.csv")
    (folder / "test_scale.py").write_text(SUITE, encoding="utf-8")
    (folder / "figure.sh").write_text("#!/bin/sh\necho '{\"rate\": 7}'\n", encoding="utf-8")
    (folder / "figure.sh").chmod(0o755)
    (folder / "test_import.py").write_text(f"import torch\n{SUITE}", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    (folder / "fleet").mkdir()
    for node in range(NODES):
        for night in range(NIGHTS):
            _write_run_of_node(folder / "fleet" / f"{node}-{night}.jsonl", node, night)


def _write_run_of_node(path: Path, node: int, night: int) -> None:
    """Write the stored run as if it were of another node and night, one node of them slow."""
    lines = (RUNS / "base-2.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    header = records[0]
    header["run_id"], header["started"] = path.stem, f"2026-01-0{night + 1}T03:0{node}:00Z"
    header["environment"]["host"]["name"] = f"node{node}"
    factor = (SLOWER if node == SLOW_NODE else 1) * (1 + (node * 7 + night * 5) % 11 / 1000)
    for record in records[1:]:
        if record["type"] == "measurement":
            seconds = record["samples"]["seconds"]
            record["samples"]["seconds"] = [each * factor for each in seconds]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def run(words: list[str]) -> tuple[int, str]:
    """Return the exit status of a command, and what it prints."""
    program, *arguments = words
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        if program == "pytest":
            return int(pytest.main(arguments)), printed.getvalue()
        try:
            roofline(arguments, prog_name="roofline")
        except SystemExit as ended:
            return int(ended.code or 0), printed.getvalue()
    return 0, printed.getvalue()


def wrong_ones(folder: Path) -> list[str]:
    """Return a line for every command that does not end as the table says."""
    make_scene(folder)
    os.environ.pop("PYTEST_ADDOPTS", None)
    wrong = []
    with chdir(folder):
        for command, expected, part in COMMANDS:
            words = command.split()
            if words[0] == "roofline" and words[1] not in roofline.commands:
                # Of a feature that was taken out.
                continue
            status, printed = run(words)
            if status != expected or part not in " ".join(printed.split()):
                wrong.append(
                    f"{command}: status {status}, expected {expected} and {part!r} in\n{printed}"
                )
    return wrong


def main(folder: Path) -> str | None:
    """Try all; what is wrong, if anything."""
    if "torch" in sys.modules and sys.modules["torch"] is not None:
        return "torch is imported, so nothing is proved"
    wrong = wrong_ones(folder)
    if wrong:
        return "\n".join(wrong)
    print(f"{len(COMMANDS)} commands end as they should without torch")
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
