"""Cases by the number: each takes a target, a seed and changes, all from the number alone, and holds it to three rules.

No traceback, no hang, and no silent accept: what a change made invalid is refused.
"""

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .mutating import Change, apply, mutate
from .seeds import Seed, seeds, write_fleet
from .targets import Accepted, Target, targets

KEPT = Path(__file__).parent / "kept"
# Of a case, in seconds; the slowest writes a page.
LIMIT_S = 20


class Hang(BaseException):
    """A case took too long; no `except Exception` may catch it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """A case that broke a rule.

    Args:
        rule: `tracebacks`, `hangs` or `silent`.
        case: target, seed, changes, and why it must be refused; it can be replayed.
        told: what happened.
    """

    rule: str
    case: dict[str, Any]
    told: str


class Fuzzer:
    """Runs cases in a folder of its own, which is the current one meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.seeds = seeds()
        self.targets = {target.name: target for target in targets(self.seeds)}
        self._folder = folder
        self._whole = folder / "whole"
        self._whole.mkdir()
        write_fleet(self._whole)
        for name, seed in self.seeds.items():
            (
                self._whole / (f"{name}.jsonl" if seed.file == "run.jsonl" else seed.file)
                # Under another name of the run, as nothing is compared with itself.
            ).write_bytes(seed.data.replace(b'"run_id":"', b'"run_id":"whole-'))

    def case(self, number: int, seed: int, groups: Sequence[str] = ()) -> dict[str, Any]:
        """The case of a number: which target, which file, what is changed."""
        chance = random.Random(f"{seed}:{number}")
        offered = [
            target for target in self.targets.values() if not groups or target.group in groups
        ]
        (target,) = chance.choices(offered, [one.share for one in offered])
        name = chance.choice(target.seeds)
        changes, why = mutate(self.seeds[name], chance)
        return {"target": target.name, "seed": name, "changes": changes, "refused": why}

    def run(self, case: dict[str, Any]) -> Failure | None:
        """One case; what it broke."""
        target, seed = self.targets[case["target"]], self.seeds[case["seed"]]
        data = apply(seed, case["changes"])
        try:
            with _limit(LIMIT_S):
                refused = self._call(target, seed, data)
        except Hang:
            return Failure("hangs", case, f"more than {LIMIT_S} s")
        except Accepted as error:
            return Failure("silent", case, str(error))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return Failure("tracebacks", case, "".join(traceback.format_exception(error)[-3:]))
        if case["refused"] and not refused and data != seed.data:
            return Failure("silent", case, f"accepted {case['refused']}")
        return None

    def _call(self, target: Target, seed: Seed, data: bytes) -> bool:
        # A name of its own, so that a command that names the file names this one.
        folder = self._folder / "changed"
        folder.mkdir()
        try:
            path = folder / seed.file
            path.write_bytes(data)
            (folder / "whole").symlink_to(self._whole, target_is_directory=True)
            os.chdir(folder)
            return target.call(path)
        finally:
            os.chdir(self._folder)
            shutil.rmtree(folder)


@contextlib.contextmanager
def fuzzer() -> Iterator[Fuzzer]:
    """A fuzzer in a folder that goes with it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="roofline-fuzz-") as folder:
        os.chdir(folder)
        try:
            yield Fuzzer(Path(folder))
        finally:
            os.chdir(before)


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def over(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def kept() -> dict[str, dict[str, Any]]:
    """The cases that once failed, by the name of their file."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(KEPT.glob("*.json"))
    }


@dataclasses.dataclass
class Summary:
    """What came of many cases."""

    failures: list[Failure] = dataclasses.field(default_factory=list)
    by_loader: Counter[str] = dataclasses.field(default_factory=Counter)
    seconds: float = 0.0

    def count(self, running: Fuzzer, case: dict[str, Any]) -> None:
        """Run a case, and keep what came of it."""
        self.by_loader[case["target"]] += 1
        failure = running.run(case)
        if failure is not None:
            self.failures.append(failure)

    @property
    def plain(self) -> dict[str, Any]:
        """For machines, and counted."""
        rules = Counter(failure.rule for failure in self.failures)
        counts = {rule: rules[rule] for rule in ("tracebacks", "hangs", "silent")}
        by_loader = dict(sorted(self.by_loader.items()))
        return {
            "cases": self.by_loader.total(),
            **counts,
            "by_loader": by_loader,
            "seconds": round(self.seconds, 1),
        }


def fuzz(running: Fuzzer, numbers: Sequence[int], seed: int, groups: Sequence[str] = ()) -> Summary:
    """The cases of these numbers."""
    summary, begun = Summary(), time.monotonic()
    for number in numbers:
        summary.count(running, running.case(number, seed, groups))
    summary.seconds = time.monotonic() - begun
    return summary


def replayed(running: Fuzzer) -> Summary:
    """The kept cases; one whose place is no longer in its seed is an error."""
    summary, begun = Summary(), time.monotonic()
    for name, case in kept().items():
        if (
            apply(running.seeds[case["seed"]], _strict(case["changes"]))
            == running.seeds[case["seed"]].data
        ):
            raise LookupError(
                f"the kept case {name} changes nothing in its seed any more; make it anew"
            )
        summary.count(running, case)
    summary.seconds = time.monotonic() - begun
    return summary


def _strict(changes: Sequence[Change]) -> list[Change]:
    return [change | {"strict": True} for change in changes]
