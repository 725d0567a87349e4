"""What stands in the folder of a page before its first command: runs and files that its text takes for granted."""

import json
from collections.abc import Callable
from pathlib import Path

from ... import warm
from .pages import ROOT
from .scene import Scene

# Sessions of one machine, on days of their own.
SCATTER = (1.0, 1.004, 0.996, 1.002, 0.998)
NEW = "570.86"


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
                ["-m", "pytest", "perf_tests", "--roofline-save=once"],
                cwd=self._path,
                env=scene.environment(),
            )
            assert done.returncode == 0, done.stdout + done.stderr
            self._lines = (
                (self._path / ".roofline" / "runs" / "once.jsonl")
                .read_text(encoding="utf-8")
                .splitlines()
            )
        return self._lines

    def run(
        self,
        scene: Scene,
        name: str,
        *,
        factor: float = 1.0,
        day: int = 1,
        driver: str = "550.54",
        device: str = "GPU-fake",
        node: str = "node0",
        folder: str = ".roofline/runs",
    ) -> Path:
        """Put a run under a name, of a device and a day of January on which everything took `factor` times as long."""
        header = {"run_id": name, "started": f"2026-01-{day:02}T12:00:00Z"}
        path = scene.path / folder / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for record in map(json.loads, self.lines()):
                if record["type"] == "header":
                    record |= header
                    record["environment"]["device"] |= {"driver": driver, "uuid": device}
                    record["environment"]["host"]["name"] = node
                if record["type"] == "measurement":
                    record["process"] = f"{name}-1"
                    record["samples"]["seconds"] = [
                        seconds * factor for seconds in record["samples"]["seconds"]
                    ]
                    record["derived"]["median_s"] *= factor
                file.write(json.dumps(record) + "\n")
        return path

    def baseline(self, scene: Scene) -> None:
        """Approve five sessions into the baselines of a folder, and forget the runs."""
        paths = [
            self.run(scene, f"day{day}", factor=factor, day=day)
            for day, factor in enumerate(SCATTER, 1)
        ]
        names = [path.stem for path in paths]
        for words in (
            ["propose", "--all", *names, "-o", "days.json"],
            ["approve", "days.json", "--into", "baselines"],
        ):
            status, said = scene.roofline("baseline", *words)
            assert status == 0, said
        for path in (*paths, scene.path / "days.json"):
            path.unlink()


def baselines_page(scene: Scene, machine: Machine) -> None:
    """Runs of the driver that is gone."""
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
    "docs/ci.md": gated,
    "docs/reference/baselines.md": baselines_page,
    "docs/new-driver.md": many_machines,
    "docs/fleet.md": many_machines,
    "docs/reference/gate.md": gated,
}
