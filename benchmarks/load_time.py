"""What does the plugin cost a pytest run that does not use it? Interleaved runs with and without, difference of minima.

    python benchmarks/load_time.py -o docs/results/load-time.md

The peer is pytest-benchmark, loaded and not loaded in the same interleaving.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stamp import stamped

ROUNDS = 40
WITHOUT = ("-p", "no:roofline", "-p", "no:benchmark")
CASES = {
    "neither": WITHOUT,
    "pytest-roofline": ("-p", "no:benchmark"),
    "pytest-benchmark": ("-p", "no:roofline"),
}
# As users have it: compiled files are kept, so that a second run does not compile again.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
OTHERS = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:rerunfailures", "-p", "no:hypothesispytest")


def time_once(folder: Path, arguments: tuple[str, ...]) -> float:
    """Seconds of one whole pytest process over a suite of one plain test."""
    command = [sys.executable, "-m", "pytest", "-q", *OTHERS, *arguments, str(folder)]
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=ENVIRONMENT)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_plain.py").write_text("def test_nothing():\n    assert True\n", encoding="utf-8")
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
    text = "\n".join(lines)
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
