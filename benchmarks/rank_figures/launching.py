"""Figure 4: one unchanged file under every launcher."""

import shutil
import time
from collections import Counter
from pathlib import Path

from .page import Figure, Goal, table


def measure(folder: Path, slurm: dict[str, str]) -> Figure:
    """Run the file of `tests/slow/ranks/test_launchers.py` under each.

    Args:
        folder: to run in.
        slurm: the environment of two nodes.
    """
    from tests.ranks import launches

    rows, same = [], 0
    for name, command in launches.LAUNCHES.items():
        place = folder / name.replace(" ", "-")
        place.mkdir(parents=True)
        (place / "pytest.ini").touch()
        shutil.copy(launches.SUITE, place / "test_suite.py")
        began_s = time.perf_counter()
        done = launches.run(place, command(), slurm)
        took_s = time.perf_counter() - began_s
        outcomes = {test: outcome for test, (outcome, _) in launches.cases(place).items()}
        as_expected = outcomes == launches.expected_of(name)
        alike = as_expected and launches.reports(done.stdout) == (1, 1, 1) and done.returncode != 0
        same += alike
        print(name, f"{took_s:.1f} s", "as expected" if alike else "DIFFERENT", flush=True)
        words = words_of(outcomes)
        rows.append(
            (
                name,
                words,
                str(launches.reports(done.stdout)[0]),
                str(done.returncode),
                f"{took_s:.1f} s",
            )
        )
    goal = Goal(
        "launches with the same outcomes and one report",
        f"{len(rows)} of {len(rows)}",
        f"{same} of {len(rows)}",
        same == len(rows),
    )
    head = ("launch", "outcomes", "reports", "exit status", "seconds")
    text = f"""`tests/ranks/launched_suite.py`, unchanged: tests that pass, measure, fail, are skipped, lose a
rank by SIGKILL and hang. Where a launch has two ranks, the test that needs four is skipped; under srun and torchrun
there are four, and it passes; where pytest starts ranks itself it is left out. srun's exit status is that of the
agent that it ended.

{table(head, rows)}"""
    return Figure("Launchers", (goal,), text)


def words_of(outcomes: dict[str, str]) -> str:
    """`3 failed, 4 passed, 1 skipped`."""
    counts = Counter(outcomes.values())
    return ", ".join(f"{counts[word]} {word}" for word in sorted(counts))
