"""Which saved runs become a baseline, chosen by what they ran on: a driver that is gone can still be compared."""

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import BadFile, BadInput, OtherHardware
from ..core.facts import HardwareKey
from ..core.units import moment
from ..hardware import key_of
from .runs import Run, read_run


@dataclass(frozen=True, slots=True)
class Choice:
    """What a run must have run on, and when; what is empty or None lets every run through.

    Args:
        driver: the driver's version, or its first parts: `550` takes 550.54.14, but not 5501.
        before: begun before this moment; one without a date is not.
        after: begun at this moment or later.
        product: a hardware key as it is printed, or words of it: `h200-sxm`.
    """

    driver: str = ""
    before: datetime.datetime | None = None
    after: datetime.datetime | None = None
    product: str = ""

    def __str__(self) -> str:
        before, after = (time.isoformat() if time else "" for time in (self.before, self.after))
        given = {"driver": self.driver, "product": self.product, "before": before, "after": after}
        return " ".join(f"--{name} {value}" for name, value in given.items() if value)


@dataclass(frozen=True, slots=True)
class Picked:
    """The runs to take, and what a person should know of those that were not."""

    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()


def parse_moment(text: str, what: str) -> datetime.datetime:
    """A date or time that a user gave.

    Raises:
        BadInput: it is not ISO 8601.
    """
    time = moment(text.strip())
    if time is None:
        raise BadInput(f"{what} is {text!r}; expected a date or time in ISO 8601: 2026-03-01 or 2026-03-01T06:30Z")
    return time


def hardware_of(run: Run) -> HardwareKey:
    """What a run was measured on, as one device."""
    alone = (measurement.key.hardware.alone for measurement in run.measurements)
    return next(alone, None) or key_of(run.header.environment)


def pick(runs: Sequence[Run], choice: Choice) -> Picked:
    """Those of the named runs that a choice takes.

    Raises:
        BadInput: none of them; the sentence tells which drivers and dates there are.
    """
    taken = [run for run in runs if _takes(choice, run, _exact(choice, runs))]
    if not taken:
        raise BadInput(f"no run matches {choice}; {describe(runs)}")
    note = f"{len(taken)} of {len(runs)} runs match {choice}"
    return Picked(tuple(taken), (note,) if len(taken) < len(runs) else ())


def scan(folder: Path, choice: Choice) -> Picked:
    """The runs saved in a folder that a choice takes; files that cannot be read are named and left out.

    Raises:
        BadInput: there is no run, or none that the choice takes.
        OtherHardware: those that it takes are of several.
    """
    paths = sorted((folder / "runs").glob("*.jsonl"))
    runs, notes = _readable(paths)
    if not runs:
        seen = f" that can be used ({'; '.join(notes[:3])})" if notes else ""
        raise BadInput(f"no run in {folder / 'runs'}{seen}; record one with `pytest --roofline-save=NAME`")
    picked = pick(runs, choice)
    taken = list(picked.runs)
    for strange, why in ((is_fake, "it is of a fake device"), (is_imported, "it was imported from another tool")):
        left = [run for run in taken if strange(run)]
        if len(left) < len(taken):
            notes += [f"{run.path} is left out: {why}" for run in left]
            taken = [run for run in taken if not strange(run)]
    _refuse_several(taken)
    return Picked(tuple(taken), (*notes, *picked.notes))


def is_fake(run: Run) -> bool:
    """Whether a run is of the fake device that tests use."""
    return run.header.environment.device.type == "fake"


def is_imported(run: Run) -> bool:
    """Whether a run was made from another tool's output, by `roofline import`."""
    return run.header.command[:2] == ("roofline", "import")


def describe(runs: Sequence[Run]) -> str:
    """`there are 14, of driver 570.86 (12); 580.10 (2), begun from 2026-02-01 to 2026-02-14, on h200-sxm, 141gb`."""
    drivers = Counter(run.header.environment.device.driver or "unknown" for run in runs)
    hardware = Counter(str(hardware_of(run)) for run in runs)
    there = f"there are {len(runs)}" if len(runs) > 1 else "there is one"
    return f"{there}, of driver {_counted(drivers)}, begun {_span(runs)}, on {_counted(hardware)}"


def _span(runs: Sequence[Run]) -> str:
    times = sorted(time for run in runs if (time := moment(run.header.started)))
    if not times:
        return "nobody knows when"
    first, last = (time.isoformat(timespec="minutes") for time in (times[0], times[-1]))
    return f"at {first}" if first == last else f"from {first} to {last}"


def _counted(counts: Counter[str]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{name} ({count})" for name, count in counts.most_common())


def _readable(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    runs: dict[str, Run] = {}
    notes = []
    for path in paths:
        try:
            run = read_run(path)
        except BadFile as error:
            notes.append(f"left out: {error}")
            continue
        known = runs.setdefault(run.header.run_id, run)
        if known is not run:
            notes.append(f"{path} is left out: it is the same run as {known.path}")
        elif not run.measurements and not run.resources:
            notes.append(f"{path} is left out: it holds no measurement")
            del runs[run.header.run_id]
    return list(runs.values()), notes


def _exact(choice: Choice, runs: Sequence[Run]) -> bool:
    """Whether the product names one of the hardware keys in full: then a partition of it is not meant."""
    return any(str(hardware_of(run)) == choice.product for run in runs)


def _takes(choice: Choice, run: Run, exact: bool) -> bool:
    time = moment(run.header.started)
    if choice.before is not None and not (time and time < choice.before):
        return False
    if choice.after is not None and not (time and time >= choice.after):
        return False
    return _has_driver(run, choice.driver) and _is_product(hardware_of(run), choice.product, exact)


def _has_driver(run: Run, wanted: str) -> bool:
    driver, prefix = run.header.environment.device.driver or "", wanted.rstrip(".")
    # The next character must end a part of the version: 550 is no driver of 5501.
    return driver.startswith(prefix) and not (prefix and driver[len(prefix) :][:1].isalnum())


def _is_product(hardware: HardwareKey, wanted: str, exact: bool) -> bool:
    if exact:
        return str(hardware) == wanted
    facts = {hardware.product, hardware.memory, hardware.partition, hardware.link}
    return all(word in facts for word in re.split(r"[,\s]+", wanted.strip()) if word)


def _refuse_several(runs: Sequence[Run]) -> None:
    # Compiled kernels belong to their targets, whatever compiled them.
    keys = Counter(str(hardware_of(run)) for run in runs if run.measurements)
    if len(keys) > 1:
        raise OtherHardware(
            f"the runs are of different hardware: {_counted(keys)}; expected one, choose it with "
            f'--product "{keys.most_common(1)[0][0]}"'
        )
