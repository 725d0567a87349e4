"""What stands in the folder of a page before its first command: runs and files that its text takes for granted."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from .. import warm
from .pages import ROOT
from .scene import ROOFLINE, Scene

# Sessions of one machine, on days of their own.
SCATTER = (1.0, 1.004, 0.996, 1.002, 0.998)


class Machine:
    """The stand-in for the reader's machine: one measured run, and others made of it.

    Args:
        path: an empty folder, in which the run is measured when the first page needs it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        """Of the run file of all stand-ins."""
        if not self._lines:
            scene = Scene(self._path)
            done = warm.run(
                ["-m", "pytest", "perf_tests", "--roofline-save=once"], cwd=self._path, env=scene.environment()
            )
            assert done.returncode == 0, done.stdout + done.stderr
            self._lines = (self._path / ".roofline" / "runs" / "once.jsonl").read_text(encoding="utf-8").splitlines()
        return self._lines

    def run(self, scene: Scene, name: str, *, factor: float = 1.0, day: int = 1, driver: str = "550.54") -> Path:
        """Put a run under a name, of a day of January on which everything took `factor` times as long."""
        path = scene.path / ".roofline" / "runs" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        records = [
            _as_of(json.loads(line), name, f"2026-01-{day:02}T12:00:00Z", factor, driver) for line in self.lines()
        ]
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        return path

    def baseline(self, scene: Scene) -> None:
        """Approve five sessions into the baselines of a folder, and forget the runs."""
        paths = [self.run(scene, f"day{day}", factor=factor, day=day) for day, factor in enumerate(SCATTER, 1)]
        names = [path.stem for path in paths]
        for words in (["propose", "--all", *names, "-o", "days.json"], ["approve", "days.json", "--into", "baselines"]):
            done = warm.run(["-c", ROOFLINE, "baseline", *words], cwd=scene.path, env=scene.environment())
            assert done.returncode == 0, done.stdout + done.stderr
        for path in (*paths, scene.path / "days.json"):
            path.unlink()


def _as_of(record, name, started, factor, driver):
    if record["type"] == "header":
        record |= {"run_id": name, "started": started}
        record["environment"]["device"]["driver"] = driver
    if record["type"] == "measurement":
        record["process"] = f"{name}-1"
        record["samples"]["seconds"] = [seconds * factor for seconds in record["samples"]["seconds"]]
    return record


def readme(scene: Scene, machine: Machine) -> None:
    """A baseline; a second driver; nodes before and after it; the run of a word in capitals; another tool's log."""
    machine.baseline(scene)
    machine.run(scene, "driver-570", day=9, driver="570.86")
    machine.run(scene, "RUN")
    shutil.copy(ROOT / "tests" / "exchange" / "data" / "a100-all_reduce.log", scene.path / "all_reduce.log")
    shutil.rmtree(scene.path / "baselines", ignore_errors=True)
    machine.baseline(scene)
    for side, driver, first in (("before", "550.54", 1), ("after", "570.86", 11)):
        for number in (1, 2, 3):
            machine.run(scene, f"{side}{number}", day=first + number, driver=driver, factor=SCATTER[number])


def baselines_page(scene: Scene, machine: Machine) -> None:
    """Runs of the driver that is gone, and of another week."""
    for day in (1, 2, 3):
        machine.run(scene, f"january-{day}", day=day)


def gated(scene: Scene, machine: Machine) -> None:
    """A baseline of everything."""
    machine.baseline(scene)


def many_machines(scene: Scene, machine: Machine) -> None:
    """Runs of the made-up fleet of the benchmark."""
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); "
        "from many_runs import plan_of, write; Path('runs').mkdir(); write(plan_of(1000, 8), Path('runs'))"
    )
    done = warm.run(["-c", code, str(ROOT / "benchmarks")], cwd=scene.path)
    assert done.returncode == 0, done.stderr


def nothing(scene: Scene, machine: Machine) -> None:
    """A page that begins in an empty folder."""


PREPARATIONS: dict[str, Callable[[Scene, Machine], None]] = {
    "README.md": readme,
    "docs/baselines.md": baselines_page,
    "docs/many-machines.md": many_machines,
    "docs/verdicts.md": gated,
}
