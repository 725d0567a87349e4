"""Who got the new driver in a staged rollout, and who did not: run files paired by device, before and after."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..core.errors import BadInput, OtherHardware
from ..core.facts import HardwareKey
from ..core.units import listed, printable
from .hardware import identity_of, key_of
from .runs import Run
from .verdicts import changed_environment

# Of names in an error.
MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Pair:
    """One device with its runs of both sides.

    Args:
        device: its identity.
        host: the name of its node.
        old: the driver before; `new` the one after.
    """

    device: str
    host: str
    old: str
    new: str
    before: tuple[Run, ...]
    after: tuple[Run, ...]

    @property
    def changed(self) -> list[str]:
        """What else than the driver differs after from before: `kernel 5.15 → 6.8`, or the host that it is in."""
        before = [run.header.environment.comparable() for run in self.before]
        found = (changed_environment(run.header.environment.comparable(), before) for run in self.after)
        told = dict.fromkeys(change for changes in found for change in changes)
        moved = (
            [] if self.hosts[0] == self.hosts[1] else [f"host {' → '.join(', '.join(names) for names in self.hosts)}"]
        )
        return [*moved, *(change for change in told if not change.startswith("driver "))]

    @property
    def hosts(self) -> tuple[list[str], list[str]]:
        """The names of the nodes that it was in, before and after."""
        before, after = ({run.header.environment.host.name for run in runs} for runs in (self.before, self.after))
        return sorted(before), sorted(after)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A staged rollout: devices whose driver changed, devices whose driver stayed, and who is left out, with why.

    `gone` are devices that ran under the old driver before and do not at all after: the new one may have broken them.
    """

    old: str
    new: str
    treated: tuple[Pair, ...]
    controls: tuple[Pair, ...]
    left_out: tuple[str, ...]
    gone: tuple[str, ...] = ()


def pair_devices(
    before: Sequence[Run], after: Sequence[Run], old: str | None = None, new: str | None = None
) -> Rollout:
    """The rollout that two lots of runs tell of.

    Args:
        before: runs from before it, of any devices of one product.
        after: runs from after it.
        old: the driver that is compared with, where the runs hold several; None is the only one that was replaced.
        new: the driver that is compared.

    Raises:
        OtherHardware: the runs are of several products or partitions.
        BadInput: no device got another driver, or nobody can tell which two drivers are meant.
    """
    _refuse_mixed([*before, *after])
    _refuse_twice([*before, *after])
    known_before, known_after = _by_device(before), _by_device(after)
    one_sided = [f"{device} is only among --before" for device in known_before if device not in known_after]
    one_sided += [f"{device} is only among --after" for device in known_after if device not in known_before]
    pairs, left_out = [], []
    for device in known_before:
        if device in known_after:
            pair, why = _pair(device, known_before[device], known_after[device], old, new)
            pairs += [pair] if pair is not None else []
            left_out += [why] if why else []
    treated = [pair for pair in pairs if pair.old != pair.new]
    held = _held(known_before, known_after)
    _refuse_unclear(treated, pairs, old, new, [*one_sided, *left_out], held)
    return Rollout(
        old=treated[0].old,
        new=treated[0].new,
        treated=tuple(treated),
        controls=tuple(pair for pair in pairs if pair.old == pair.new),
        left_out=(*one_sided, *left_out),
        gone=tuple(
            device
            for device, runs in known_before.items()
            if device not in known_after and treated[0].old in _drivers(runs)
        ),
    )


def _refuse_mixed(runs: Sequence[Run]) -> None:
    kinds: dict[HardwareKey, Run] = {}
    for run in runs:
        environment = run.header.environment
        if not identity_of(environment) or environment.device.driver is None:
            what = "was measured on a CPU" if environment.device.type == "cpu" else "does not tell its driver"
            raise BadInput(f"run file {run.path} {what}; expected runs of accelerators, whose driver is recorded")
        kinds.setdefault(key_of(environment), run)
    if len(kinds) > 1:
        told = "; ".join(f"{key} in {run.path}" for key, run in list(kinds.items())[:MOST_NAMED])
        raise OtherHardware(f"the runs are of different hardware: {told}; expected one, as a driver may favour either")


def _refuse_twice(runs: Sequence[Run]) -> None:
    seen: dict[tuple[str, ...], Run] = {}
    for run in runs:
        # Runs of two machines may have been kept under one name.
        name = run.header.run_id, run.header.started, identity_of(run.header.environment)
        if name in seen:
            given = f"as {seen[name].path} and as {run.path}"
            raise BadInput(f"run {run.header.run_id} is given twice, {given}; expected it once, before or after")
        seen[name] = run


def _by_device(runs: Sequence[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(identity_of(run.header.environment), []).append(run)
    return found


def _driver(run: Run) -> str:
    return run.header.environment.device.driver or ""


def _drivers(runs: Iterable[Run]) -> list[str]:
    return sorted({_driver(run) for run in runs})


def _pair(
    device: str, before: Sequence[Run], after: Sequence[Run], old: str | None, new: str | None
) -> tuple[Pair | None, str]:
    """A device with its runs under one driver on each side; or why it is left out."""
    # Of a device that was not upgraded, the runs under the driver that it kept.
    kept = set(_drivers(before)) & set(_drivers(after))
    first = [run for run in before if old is None or _driver(run) == old]
    second = [run for run in after if new is None or _driver(run) == new]
    if not second and kept and (old is None or old in kept):
        second = [run for run in after if old is None or _driver(run) == old]
    if not first and kept and (new is None or new in kept):
        first = [run for run in before if new is None or _driver(run) == new]
    if not first or not second:
        ran = f"{', '.join(_drivers(before))} before and {', '.join(_drivers(after))} after"
        return None, f"{device} ran under {ran}, which is not what is compared"
    for option, side, runs in (("--driver-old", "--before", first), ("--driver-new", "--after", second)):
        if len(_drivers(runs)) > 1:
            raise BadInput(
                f"{device} ran under several drivers among {side} ({', '.join(_drivers(runs))}); expected one, or say "
                f"with {option} which is meant"
            )
    host = first[0].header.environment.host.name
    return Pair(device, host, _driver(first[0]), _driver(second[0]), tuple(first), tuple(second)), ""


def _held(before: Mapping[str, Sequence[Run]], after: Mapping[str, Sequence[Run]]) -> str:
    """`550.54 → 570.86 (4 devices), 550.54 → 550.54 (1 device)`."""
    found = Counter(
        f"{', '.join(_drivers(runs))} → {', '.join(_drivers(after[device]))}"
        for device, runs in before.items()
        if device in after
    )
    return _listed([f"{drivers} ({count} device{'s' * (count > 1)})" for drivers, count in found.most_common()])


def _refuse_unclear(
    treated: Sequence[Pair],
    pairs: Sequence[Pair],
    old: str | None,
    new: str | None,
    left_out: Sequence[str],
    held: str,
) -> None:
    wanted = " and ".join(
        f"{option}={value}" for option, value in (("--driver-old", old), ("--driver-new", new)) if value is not None
    )
    if not pairs:
        why = f": {_listed(left_out, '; ')}" if left_out else ""
        asked, these = (f" under what {wanted} speaks of", " under these drivers") if wanted else ("", "")
        raise BadInput(
            f"no device was measured both before and after{asked}{why}; expected runs of the same devices{these}"
        )
    if not treated:
        kept = _listed([f"{pair.device} under {pair.old}" for pair in pairs])
        told = f" that {wanted} speaks of: the runs hold {held}" if wanted else f": {kept}"
        raise BadInput(f"no device got another driver{told}; expected some with another driver after than before")
    changes = sorted({(pair.old, pair.new) for pair in treated})
    if len(changes) > 1:
        told = _listed([f"{one} → {other}" for one, other in changes])
        raise BadInput(
            f"several drivers were replaced ({told}); say with --driver-old and --driver-new which two are compared"
        )


def _listed(texts: Sequence[str], by: str = ", ") -> str:
    return printable(listed(texts, MOST_NAMED, by))


def nodes(pairs: Iterable[Pair]) -> int:
    """How many nodes devices are in."""
    return len({pair.host for pair in pairs})
