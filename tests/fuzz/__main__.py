"""`python -m tests.fuzz --cases N --seed S [--json]`: changed files against every loader and command.

The kept cases come first. Each failure is printed on standard error as the case to keep; the exit status is 1 then.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from .fuzzing import fuzz, fuzzer, replayed


def main() -> int:
    """Run what was asked for; 0 where nothing failed."""
    asked = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    asked.add_argument(
        "--cases", type=int, default=10_000, help="how many, beside those that are kept"
    )
    asked.add_argument(
        "--seed", type=int, default=0, help="of chance: the same seed makes the same cases"
    )
    asked.add_argument("--json", action="store_true", help="print one line of JSON")
    given = asked.parse_args()
    with fuzzer() as running:
        before = replayed(running)
        found = fuzz(running, range(given.cases), given.seed)
    found.failures[:0] = before.failures
    found.by_loader += before.by_loader
    found.seconds += before.seconds
    for failure in found.failures:
        print(f"{failure.rule}: {json.dumps(failure.case)}\n{failure.told}", file=sys.stderr)
    plain = found.plain
    if given.json:
        command = ("git", "-C", Path(__file__).parent, "rev-parse", "--short=7", "HEAD")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        plain["commit"] = done.stdout.strip()
        print(json.dumps(plain))
    else:
        counts = ", ".join(f"{plain[rule]} {rule}" for rule in ("tracebacks", "hangs", "silent"))
        print(f"{plain['cases']} cases: {counts}, in {plain['seconds']} s")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
